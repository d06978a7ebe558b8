"""What a pack may bring through its door beside tools: judged before it is used, and claimed by one pack only."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.policy.support import install, pack_source
from toolgate.config import load_settings
from toolgate.enabled import enabled_packs
from toolgate.errors import SettingsError, StartRefused
from toolgate.model.tool import DOOR, Pack, later
from toolgate.packs.loader import load_packs

NAMES = "from toolgate.model.tool import *\n"
NOTES = "stores=(StoreSpec('notes', 'notes'),), migrations=(Migration('notes', 1, ('CREATE TABLE n (x BIGINT)',)),)"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed distributions, before all others."""
    place = tmp_path / tmp_path.name  # modules are named after it, and stay imported
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    return place


def bring(site: Path, more: str, name: str = "stray", **tool: str) -> None:
    """Install a pack whose door also brings this."""
    tool.setdefault("tool_name", f"{name}_probe")
    source = pack_source(name, **tool).replace("Pack(name=", f"Pack({more}, name=")
    install(site, name, NAMES + source)


def test_a_pack_that_says_nothing_of_the_door_was_written_for_the_first() -> None:
    assert Pack(name="x", tools=()).door == DOOR == 1


def test_a_pack_for_another_door_is_refused_with_both_versions(site: Path) -> None:
    bring(site, "door=2")
    with pytest.raises(
        StartRefused, match="pack stray was made for version 2 of the door, and this Toolgate has version 1"
    ):
        load_packs(["stray"])


BAD = {
    "store with a dash": ("stores=(StoreSpec('my-notes', 'x'),)", "the store 'my-notes' is not lower-case"),
    "store like a secret's file": ("stores=(StoreSpec('notes_file', 'x'),)", "not ending in _file"),
    "store without tables": ("stores=(StoreSpec('notes', 'x'),)", "needs migrations numbered from 1"),
    "store twice": (NOTES.replace("'notes'),)", "'notes'), StoreSpec('notes', 'x'))", 1), "declared twice"),
    "gap in the steps": (NOTES.replace(", 1, ", ", 2, "), "numbered from 1 without a gap"),
    "table of no store": (
        NOTES.replace("stores=(StoreSpec('notes', 'notes'),)", "stores=()"),
        "stores does not declare",
    ),
    "command with a blank": ("commands=(Command('my notes', 'x', 'a:b'),)", "the command 'my notes'"),
    "command without a place": ("commands=(Command('notes', 'x', 'a.b'),)", "is not at module:name"),
    "command twice": (
        "commands=(Command('n', 'x', 'a:b'), Command('n', 'x', 'a:b'))",
        "the command 'n' is declared twice",
    ),
    "service twice": ("services=(Service('s', dict), Service('s', dict))", "the service 's' is declared twice"),
    "job twice": ("jobs=(Job('j', dict), Job('j', dict))", "the kind of job 'j' is declared twice"),
    "secret that is none": ("secrets=lambda settings: ['hunter2']", "env:NAME or file:NAME"),
    "secrets in one text": ("secrets=lambda settings: 'env:X'", "secrets is not a function"),
    "secrets that raise": ("secrets=lambda settings: settings['x']", "secrets is not a function"),
    "hosts that are a list": ("hosts=lambda settings: ['a.example']", "hosts is not a function"),
    "host that is an address": (
        "hosts=lambda settings: Hosts(named=['https://a.example'])",
        "the host 'https://a.example'",
    ),
    "host without a dot": ("hosts=lambda settings: Hosts(named=['intranet'])", "the host 'intranet'"),
    "private host without its port": ("hosts=lambda settings: Hosts(private=['10.0.0.1'])", "is not host:port"),
    "use of two words": ("key_uses=('My Use',)", "the use 'My Use'"),
    "use of the log's key": ("key_uses=('log',)", "belongs to the audit log"),
    "the log's use by its settings": ("keys=lambda settings: {'my.key': 'log'}", "belongs to the audit log"),
    "prompts that are none": ("prompts=('x',)", "prompt ?: it is no Prompt and no Resource"),
    "panels that are none": ("panels=('x',)", "a panel is not a Panel"),
    "metrics": ("metrics=('x',)", "metrics are not served by this Toolgate yet"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_a_rule_of_the_door_is_refused_by_name(site: Path, name: str) -> None:
    more, fault = BAD[name]
    bring(site, more)
    with pytest.raises(StartRefused, match="pack stray") as refusal:
        load_packs(["stray"])
    assert fault in str(refusal.value)
    assert "hunter2" not in str(refusal.value), "what should refer to a secret may be the secret itself"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (NOTES, "the store notes"),
        ("commands=(Command('notes', 'x', 'a:b'),)", "the command notes"),
        ("key_uses=('stamps',)", "the key use stamps"),
    ],
)
def test_two_packs_cannot_claim_the_same_store_command_or_use(site: Path, more: str, what: str) -> None:
    bring(site, more)
    bring(site, more, "other")
    with pytest.raises(StartRefused, match=f"{what} is used twice, in pack stray and in pack other"):
        load_packs(["stray", "other"])


def test_no_pack_can_claim_what_one_of_ours_signs_for(site: Path) -> None:
    bring(site, "key_uses=('voting',)")
    with pytest.raises(StartRefused, match="the key use voting is used twice"):
        load_packs(["consensus", "stray"])


def test_what_is_left_for_later_is_imported_on_first_use(site: Path) -> None:
    (site / "later_parts.py").write_text("THINGS = (1, 2)\ndef double(x): return 2 * x\n")
    things, double = later("later_parts:THINGS"), later("later_parts:double")
    assert "later_parts" not in sys.modules
    assert (len(things), list(things), things[1], double(4)) == (2, [1, 2], 2, 8)


def test_a_module_holds_a_name_that_is_imported_when_somebody_asks_for_it(site: Path) -> None:
    (site / "held_part.py").write_text("THING = 7\n")
    (site / "holder.py").write_text(
        "from toolgate.later import holding\n__getattr__ = holding(THING='held_part:THING')\n"
    )
    holder = import_module("holder")
    assert "held_part" not in sys.modules
    assert holder.THING == 7
    with pytest.raises(AttributeError, match="there is no OTHER in this module"):
        _ = holder.OTHER


def test_a_module_that_is_left_for_later_and_broken_is_named_at_start(site: Path) -> None:
    source = f"{NAMES}PACK = Pack(name='stray', tools=later('nowhere_at_all:TOOLS'))"
    install(site, "stray", source)
    with pytest.raises(StartRefused, match=r"pack stray cannot be imported.*nowhere_at_all"):
        load_packs(["stray"])


# -- packs that are made at run time ----------------------------------------------------------------------------

MAKER = """
import json
from toolgate.model.tool import *

SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"greetings": {
    "type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 20}, "default": []}}}
CLOSED = {"type": "object", "additionalProperties": False, "properties": {}}

def make(context):
    pins = json.loads(context.policy.read_bytes("pins.json", max_bytes=1000)) if context.policy else {}
    return [Pack(name=f"said-{word}", tools=(Tool(
        name=f"said_{word}", id=f"said.{word}", summary=summary, input_schema=CLOSED, output_schema=CLOSED,
        effect="read", deadline_s=5, run=lambda ctx, args: Result(data={})),))
        for word, summary in [*((word, "Says it.") for word in context.settings["greetings"]), *pins.items()]]

PACK = Pack(name="sayer", tools=(), settings_schema=SCHEMA, makes=make)
"""


@pytest.fixture
def home(site: Path, tmp_path: Path) -> Path:
    install(site, "sayer", MAKER)
    place = tmp_path / "home"
    (place / "policy").mkdir(parents=True)
    return place


def enable(home: Path, settings: str = "") -> Any:
    (home / "toolgate.toml").write_text(f'[packs]\nenabled = ["sayer"]\n{settings}')
    return enabled_packs(load_settings(home, {}, {}))


def test_packs_are_made_of_settings_and_of_the_policys_files(home: Path) -> None:
    (home / "policy" / "pins.json").write_text('{"moin": "Says moin."}')
    enabled = enable(home, '[packs.sayer]\ngreetings = ["hello"]\n')
    assert [pack.name for pack in enabled.packs] == ["sayer", "said-hello", "said-moin"]
    assert [tool.summary for pack in enabled.packs for tool in pack.tools] == ["Says it.", "Says moin."]
    assert enabled.tables["said-moin"] == {}


@pytest.mark.parametrize(
    ("pins", "fault"),
    [
        ('{"Bad Name": "x"}', "not named like one"),
        ('{"hello": ""}', "a summary has 1 to"),
        ('{"hello": "x", "moin": "x"', "pack sayer cannot make its packs"),
    ],
    ids=["a bad name", "a bad tool", "bad data"],
)
def test_a_pack_that_is_made_is_judged_like_any_other(home: Path, pins: str, fault: str) -> None:
    (home / "policy" / "pins.json").write_text(pins)
    with pytest.raises(StartRefused, match=fault):
        enable(home)


def test_a_pack_that_is_made_twice_is_refused(home: Path) -> None:
    (home / "policy" / "pins.json").write_text("{}")
    with pytest.raises(StartRefused, match="used twice, in pack said-hello and in pack said-hello"):
        enable(home, '[packs.sayer]\ngreetings = ["hello", "hello"]\n')


def test_the_settings_that_name_a_host_or_a_secret_are_checked_with_what_they_say(site: Path, tmp_path: Path) -> None:
    schema = "{'type': 'object', 'additionalProperties': False, 'properties': {'token': {'type': 'string', 'default': 'env:T'}}}"
    bring(site, f"settings_schema={schema}, secrets=lambda settings: [settings['token']]")
    (tmp_path / "toolgate.toml").write_text('[packs]\nenabled = ["stray"]\n[packs.stray]\ntoken = "hunter2"\n')
    with pytest.raises(SettingsError, match=r"packs\.stray: a secret is named by env:NAME or file:NAME") as refusal:
        enabled_packs(load_settings(tmp_path, {}, {}))
    assert "hunter2" not in str(refusal.value)


# -- stores ---------------------------------------------------------------------------------------------------


def test_a_store_of_a_pack_of_ours_that_is_off_may_stay_configured(tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").write_text(
        '[packs]\nenabled = ["library"]\n[stores]\nconsensus = "postgresql://u@h/d"\nconsent = "sqlite:////tmp/x.db"\n'
    )
    assert [pack.name for pack in enabled_packs(load_settings(tmp_path, {}, {})).packs] == ["library"]


def test_a_misspelt_store_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "toolgate.toml").write_text('[stores]\nconsnt = "postgresql://u:geheim@h/d"\n')
    with pytest.raises(SettingsError, match=r"stores\.consnt.*\n.*Did you mean stores\.consent\?") as refusal:
        enabled_packs(load_settings(tmp_path, {}, {}))
    assert "geheim" not in str(refusal.value)
