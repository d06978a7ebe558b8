"""A pack made of a pin: what clients are shown, and what a call sends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import asdict

from tests.homes import make_home
from tests.policy.support import install, pack_source
from tests.upstreams.homes import NoSecrets, give, toml_of
from tests.upstreams.stub import TOOL
from toolgate.config import load_settings
from toolgate.enabled import Enabled, enabled_packs, with_made
from toolgate.errors import StartRefused
from toolgate.kit.pins import Offer, pin_of
from toolgate.model.call import Caller, no_log, no_progress
from toolgate.model.clock import SystemClock
from toolgate.model.mcpwire import RelayedCall
from toolgate.model.tool import Pack
from toolgate.packs.upstream.names import served_name
from toolgate.packs.upstream.tools import pack_of
from toolgate.powers.mcp.messages import Response
from toolgate.ruleset import governed
from toolgate.upstreams import Upstreams, pin_path

REGION = {"type": "string", "x-mcp-header": "Region"}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "region": REGION}, "required": ["text"]}


class Recording:
    """In the place of an upstream: what it would be sent."""

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}

    async def request(self, call: RelayedCall, *, seconds: float) -> Response:
        self.sent = asdict(call)
        return Response(1, {"content": []}, b'{"content":[]}')

    async def go_on(self, call: RelayedCall, handle: str, result: Any, **how: Any) -> Response:
        raise AssertionError

    async def follow(self, place: str, uri: str, *, caller: str, seconds: float) -> str:
        raise AssertionError


class Asked:
    """As much of a context as a relayed call looks at."""

    clock = SystemClock()
    deadline = clock.monotonic() + 10
    progress = staticmethod(no_progress)
    log = staticmethod(no_log)
    trace: ClassVar = {"traceparent": "p"}
    state = None
    capabilities: ClassVar[frozenset[str]] = frozenset()
    caller = Caller("k1", "admin")
    era = "modern"


def test_an_argument_that_a_header_repeats_is_sent_as_one_and_clients_are_not_told_of_it() -> None:
    offer = Offer("2026-07-28", {}, None, {"echo": {**TOOL, "inputSchema": SCHEMA}})
    upstream = Recording()
    pack, refused = pack_of(pin_of("up", {"url": "u"}, offer), upstream, prefix="up_", deadline_s=10)
    (tool,) = pack.tools
    assert refused == {}
    assert tool.foreign is not None
    assert tool.foreign.definition["inputSchema"]["properties"]["region"] == {"type": "string"}
    run: Any = tool.run
    asyncio.run(run(Asked(), {"text": "x", "region": "eu"}))
    assert upstream.sent["mirrored"] == {"mcp-param-Region": "eu"}
    assert upstream.sent["meta"] == {"traceparent": "p"}
    asyncio.run(run(Asked(), {"text": "x"}))
    assert upstream.sent["mirrored"] == {}


# -- the door -----------------------------------------------------------------------------------------------------

URL = "https://up.example.org/mcp"


def pinning_home(path: Path, tools: list[str], packs: tuple[str, ...] = ("library",)) -> Path:
    """A home with one adopted upstream, `up`, that offers these tools and is never asked."""
    home = make_home(path, packs=packs, settings=toml_of("up", {"url": URL}))
    pin = pin_of("up", {"url": URL}, Offer("2026-07-28", {}, None, {name: {**TOOL, "name": name} for name in tools}))
    file = pin_path(home.path / "policy", "up")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(pin.as_bytes())
    give(home, "up", ["admin"])
    return home.path


def enable(home: Path) -> tuple[Enabled, Upstreams]:
    settings = load_settings(home, {}, {})
    upstreams = Upstreams(settings, NoSecrets())
    return governed(settings, upstreams)[0], upstreams


def test_an_adopted_server_is_a_pack_that_was_made_of_its_pin(tmp_path: Path) -> None:
    enabled, _ = enable(pinning_home(tmp_path / "home", ["echo", "get-Sum"]))
    assert [pack.name for pack in enabled.packs] == ["library", "upstream-up"]
    assert [tool.name for tool in enabled.packs[1].tools] == ["up_echo", "up_get-Sum"]
    assert enabled.tables["upstream-up"] == {}


def test_no_installed_pack_can_have_the_name_of_an_adopted_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / tmp_path.name
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    install(site, "upstream-up", pack_source("upstream-up", tool_name="stray_probe"))
    home = pinning_home(tmp_path / "home", ["echo"], packs=("upstream-up",))
    with pytest.raises(StartRefused, match="the pack name upstream-up is used twice"):
        enable(home)


def test_two_tools_that_would_have_one_id_are_not_served(tmp_path: Path) -> None:
    odd = "x" * 52 + " y"
    twin = served_name("", odd)  # a name of its own with a prefix, and yet the same id
    enabled, upstreams = enable(pinning_home(tmp_path / "home", [odd, twin, "echo"]))
    assert [tool.name for tool in enabled.packs[1].tools] == ["up_echo"]
    assert set(upstreams.status()[0].refused) == {odd, twin}


def test_only_what_is_made_of_a_pin_has_foreign_tools_and_it_has_no_others(tmp_path: Path) -> None:
    settings = load_settings(pinning_home(tmp_path / "home", ["echo"]), {}, {})
    enabled = enabled_packs(settings)
    pack, _ = pack_of(pin_of("up", {}, Offer("", {}, None, {"echo": TOOL})), Recording(), prefix="up_", deadline_s=10)
    stray = Pack("stray", (), makes=lambda _: [pack])
    with pytest.raises(StartRefused, match="only a tool that was made of a pin is foreign"):
        with_made(enabled, [stray], settings)
    ours = Pack("stray", (), makes=lambda _: [Pack("upstream-ours", enabled.packs[0].tools[:1])])
    with pytest.raises(StartRefused, match="has tools of its upstream alone"):
        with_made(enabled, [ours], settings, pinned=True)
