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
from toolgate.errors import StartRefused, ToolError, WorkFailed
from toolgate.model.call import Call, Caller, Wire
from toolgate.model.tool import Context
from toolgate.powers.keys import KeyDirectory, PackKeys

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
