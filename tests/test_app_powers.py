"""What a tool is handed: what its effect gives and its pack declares, and nothing of another pack or another server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.gate.conftest import Gate
from tests.homes import make_home
from tests.policy.support import install
from toolgate.app import App
from toolgate.errors import OK, StartRefused, ToolError, WorkFailed
from toolgate.model.call import Call, Caller, Wire
from toolgate.model.tool import Context
from toolgate.packs.consensus import PACK as CONSENSUS
from toolgate.packs.loader import built_in
from toolgate.powers.files import CallWriter, ReadOnlyWorkspace
from toolgate.powers.keys import KeyDirectory, PackKeys
from toolgate.powers.stores import OpenStore, ReadingStore

SOURCE = """
from toolgate.model.tool import *
CLOSED = {{"type": "object", "additionalProperties": False, "properties": {{}}}}
PACK = Pack(
    name="{name}",
    tools=tuple(
        Tool(name=f"{name}_{{effect}}", id=f"{name}.{{effect}}", summary="x", input_schema=CLOSED, output_schema=CLOSED,
            effect=effect, deadline_s=5, run=lambda ctx, args: Result(data={{}}))
        for effect in ("read", "write", "crypto", "network")
    ),
    stores=(StoreSpec("{name}_store", "x"),),
    migrations=(Migration("{name}_store", 1, ("CREATE TABLE {name}_t (n BIGINT)",)),),
    secrets=lambda settings: ["env:{name}_SECRET"],
    keys=lambda settings: {{"{name}.key": "{name}-use"}},
    memory=list,
)
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    site = tmp_path / tmp_path.name  # modules are named after it, and stay imported
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    for name in ("one", "two"):
        install(site, name, SOURCE.format(name=name))
        monkeypatch.setenv(f"{name}_SECRET", f"canary-{name}")
    home = make_home(tmp_path / "home", packs=("one", "two"))
    (home.path / "secrets").mkdir(mode=0o700)
    keys = KeyDirectory(home.path / "secrets")
    for name in ("one", "two"):
        keys.generate(f"{name}.key", use=f"{name}-use")
    app = home.app()
    gate = Gate(home, app)
    yield app
    gate.run(app.close())
    gate.loop.close()


def context(app: App, name: str) -> Context:
    (found,) = [(pack, tool) for pack in app.packs for tool in pack.tools if tool.name == name]
    grant: Any = SimpleNamespace(pack=found[0].name, tool=found[1], asks=frozenset())
    call = Call(Wire("mcp", "http", "/mcp"), name)
    ticket: Any = SimpleNamespace(caller=Caller("k1", "admin"), call=call, answers={}, state=None)
    return app.powers.context_for(grant, ticket)


@pytest.mark.parametrize(
    ("effect", "powers"),
    [
        ("read", {"records"}),
        ("write", {"writer", "jobs", "changed"}),
        ("crypto", {"writer", "keys", "secrets", "changed"}),
        ("network", {"writer", "net", "secrets", "changed"}),
    ],
)
def test_the_effect_decides_which_powers_are_there(app: App, effect: str, powers: set[str]) -> None:
    ctx = context(app, f"one_{effect}")
    gated = ("writer", "keys", "net", "secrets", "jobs", "changed", "records")
    assert {name for name in gated if getattr(ctx, name) is not None} == powers


WRITTEN = {
    "writer": "limits.write_bytes_per_caller and limits.free_bytes, for each call",
    "stores": "limits.store_bytes, in SQLite; read only for effect read",
    "compute": "powers.worker.FILE_BYTES: nothing",
    "keys": "a note of a few bytes beside each key that an operator made",
    "jobs": "nothing: a job reads the workspace, and there are at most MAX_JOBS",
}
"""Of the powers of a call, those through which a disk is reached, and what bounds it. All others reach none."""
UNWRITTEN = {
    *("caller", "clock", "deadline", "settings", "progress", "files", "memory", "net", "secrets", "contract", "trace"),
    *("log", "changed", "answers", "state", "capabilities", "allowed", "era", "holdings", "environment", "records"),
}


def test_every_power_says_what_bounds_what_it_writes() -> None:
    """What a tool can do to a disk, it does through one of these: a new power must say so before a tool gets it."""
    assert set(Context.__struct_fields__) == WRITTEN.keys() | UNWRITTEN


def test_no_shipped_tool_writes_what_is_not_counted(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=built_in())
    app = home.app()
    gate = Gate(home, app)
    for pack in app.packs:
        for tool in pack.tools:
            ctx = context(app, tool.name)
            assert type(ctx.files) is ReadOnlyWorkspace, tool.name
            assert type(ctx.writer) is (type(None) if tool.effect == "read" else CallWriter), tool.name
            kinds = {type(ctx.stores.get(store.name)) for store in pack.stores}
            assert kinds <= {ReadingStore if tool.effect == "read" else OpenStore}, tool.name
    gate.run(app.close())
    gate.loop.close()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("free_bytes = 1099511627776", "disk_low"), ("write_bytes_per_caller = 1048576", "write_share_used")],
)
def test_the_settings_bound_what_a_caller_writes(tmp_path: Path, setting: str, reason: str) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",), settings=f"[limits]\n{setting}\n")
    gate = Gate(home, home.app())
    written = 0
    while (heard := gate.call("unruly_write", {"name": f"{written}"})).ending is OK:
        written += 1
        assert written < 300, "a share is 256 blocks, and little comes back within seconds"
    assert (heard.details or {}).get("reason") == reason
    assert len(list(home.workspace.iterdir())) == written
    assert gate.call("unruly_echo", {}).ending is OK, "who writes nothing is served"
    gate.run(gate.app.close())
    gate.loop.close()


def test_the_settings_bound_every_sqlite_store(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=built_in(), settings="[limits]\nstore_bytes = 1048576\n")
    app = home.app()
    gate = Gate(home, app)
    stores = {store.name: context(app, "consensus_propose").stores.get(store.name) for store in CONSENSUS.stores}
    for store in stores.values():
        pages = gate.run(store.run(lambda c: c.exec_driver_sql("PRAGMA max_page_count").scalar_one()))
        assert pages == 256
    gate.run(app.close())
    gate.loop.close()


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_tool_gets_the_stores_of_its_own_pack_and_no_other(app: App, effect: str) -> None:
    stores = context(app, f"one_{effect}").stores
    assert stores.get("one_store").name == "one_store"
    for name in ("two_store", "nothing"):
        with pytest.raises(KeyError):
            stores.get(name)


def test_a_tool_reads_the_secrets_that_its_pack_declares_and_no_other(app: App) -> None:
    secrets = context(app, "one_network").secrets
    assert secrets is not None
    assert secrets.read("env:one_SECRET") == "canary-one"
    for source in ("env:two_SECRET", "env:PATH", "file:one.key", ""):
        with pytest.raises(WorkFailed) as refused:
            secrets.read(source)
        assert refused.value.reason == "secret_unavailable"
        assert "canary" not in str(refused.value)


def test_a_service_reads_the_secrets_that_its_pack_declares_and_no_other(app: App) -> None:
    secrets = app.powers.service_context("one").secrets
    assert secrets.read("env:one_SECRET") == "canary-one"
    with pytest.raises(StartRefused, match="does not declare"):
        secrets.read("env:two_SECRET")


def test_a_tool_signs_for_the_uses_of_its_pack_and_no_other(app: App) -> None:
    keys = context(app, "one_crypto").keys
    assert keys is not None
    assert len(keys.sign("one.key", b"x", use="one-use")) == 64
    assert len(keys.public_key("two.key")) == 32, "to know a key is not to use it"
    attempts = [
        lambda: keys.sign("two.key", b"x", use="two-use"),
        lambda: keys.seed("two.key", use="two-use"),
        lambda: keys.seed("audit.key", use="log"),
        lambda: keys.temporary("mine", use="two-use"),
        lambda: keys.sign("two.key", b"x", use="one-use"),
        lambda: keys.bind("two.key", "me"),
    ]
    for attempt in attempts:
        with pytest.raises(ToolError) as refused:
            attempt()
        assert refused.value.code == "WRONG_KEY_USE"


def test_a_pack_binds_its_own_keys_and_those_that_die_with_the_process(tmp_path: Path) -> None:
    directory = KeyDirectory(tmp_path)
    directory.generate("one.key", use="one-use")
    keys = PackKeys(lambda: directory, {"one-use"}, {"one.key"})
    assert keys.bind("one.key", "store-1") == "store-1"
    keys.temporary("passing", use="one-use")
    assert keys.bind("passing", "store-1") == "store-1"


def test_what_a_pack_remembers_is_shared_by_its_calls_and_by_nobody_else(app: App, tmp_path: Path) -> None:
    context(app, "one_read").memory.append("seen")
    assert context(app, "one_write").memory == app.powers.service_context("one").memory == ["seen"]
    assert context(app, "two_read").memory == []
    home = make_home(tmp_path / "again", packs=("one",))
    other = home.app()
    gate = Gate(home, other)
    assert context(other, "one_read").memory == [], "it ended with the server that it was made for"
    gate.run(other.close())
    gate.loop.close()
