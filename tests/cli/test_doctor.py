"""`toolgate doctor` says beforehand what `toolgate serve` would refuse: one table of faults, and both are asked for each.

A test reads the source for every place that refuses a start. Each is in `PLACES`, with the fault here that reaches it or why
doctor need not be asked.
"""

from __future__ import annotations

import ast
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from tests.cli.support import Commands, process
from tests.homes import ROOT
from tests.servers.tls.certificates import Pair, pem
from toolgate.errors import ExitCode
from toolgate.packs.consensus.domain.vrf import UnsoundLibrary

SOURCE = ROOT / "src" / "toolgate"


@dataclass(frozen=True)
class Fault:
    check: str
    """Which of doctor's checks finds it."""
    make: Callable[[Path], object]
    said: str
    """A part of the text or of the fix, in doctor's answer and on the server's standard error."""
    serve: bool = True
    """False: doctor is stricter; the server starts."""
    environ: Mapping[str, str] = field(default_factory=dict)


TLS = '[server]\ntls_certificate = "server.pem"\ntls_key = "server.key"\n'


def _mixed_pair(home: Path) -> None:
    Pair(home).key.write_bytes(pem(generate_private_key(SECP256R1())))


def _settings(text: str) -> Callable[[Path], object]:
    return lambda home: (home / "toolgate.toml").write_text(text)


def _row(name: str, **changes: object) -> Callable[[Path], object]:
    """Change one row of the home's manifest."""

    def change(home: Path) -> None:
        file = home / "policy" / "mcp-tools.policy.json"
        document = json.loads(file.read_text())
        next(row for row in document["tools"] if row["name"] == name).update(changes)
        file.write_text(json.dumps(document))

    return change


def _extra_row(**row: object) -> Callable[[Path], object]:
    def add(home: Path) -> None:
        file = home / "policy" / "mcp-tools.policy.json"
        document = json.loads(file.read_text())
        document["tools"].append(row)
        file.write_text(json.dumps(document))

    return add


def _manifest_with(**parts: object) -> Callable[[Path], object]:
    def add(home: Path) -> None:
        file = home / "policy" / "mcp-tools.policy.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | parts))

    return add


LATE = {"tool": "lra_sign", "what": "tool", "announced": "2026-02-31", "text": "Gone."}


def _write(name: str, text: str | bytes, mode: int = 0o600) -> Callable[[Path], object]:
    def write(home: Path) -> None:
        file = home / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)

    return write


def _both(*makers: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda home: [make(home) for make in makers]


KEY = "11" * 32
ARBITERS = f'[packs.consensus]\narbiters = [{{ public_key = "{KEY}" }}, {{ public_key = "{KEY}" }}]\n'
OWN_TOOL = {"x-tier": "experimental", "x-visibilityHint": "own", "x-roles": ["admin"], "x-pack": "mine"}

FAULTS = {
    "settings unknown": Fault("settings", _settings("[sever]\n"), "server"),
    "settings user": Fault(
        "home", lambda home: None, "there is no user", environ={"TOOLGATE_TRUSTED_USER": "nosuch-user"}
    ),
    "store in two places": Fault(
        "packs",
        _settings('fpTableName = "fp-table"\n[stores]\nfalse_positives = "sqlite:///x.db"\n'),
        "stores.false_positives and fpTableName are both set",
    ),
    "table gone": Fault(
        "stores",
        _settings('fpTableName = "fp-table"\nawsRegion = "eu-central-1"\n'),
        "no answer from fpTableName: store false_positives does not answer",
        serve=False,
        environ={
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1",
        },
    ),
    "home open": Fault("home", lambda home: home.chmod(0o777), "chmod go-w"),
    "settings open": Fault("home", lambda home: (home / "toolgate.toml").chmod(0o666), "chmod go-w"),
    "policy open": Fault("home", lambda home: (home / "policy" / "mcp-tools.policy.json").chmod(0o666), "chmod go-w"),
    "keys open": Fault("keys", lambda home: (home / "keys" / "callers.json").chmod(0o644), "chmod 600"),
    "keys gone": Fault("keys", lambda home: (home / "keys" / "callers.json").unlink(), "toolgate keys create"),
    "secrets open": Fault("secrets", lambda home: (home / "secrets").chmod(0o755), "chmod 700", serve=False),
    "no workspace": Fault("workspace", lambda home: (home / "workspace").rmdir(), "--paths-workspace"),
    "no lock": Fault("policy", lambda home: (home / "policy" / "mcp-contract.json").unlink(), "contract build"),
    "lock is none": Fault("policy", _write("policy/mcp-contract.json", "{}"), "contract"),
    "drift": Fault("policy", _row("dummy_experimental", **{"x-roles": ["admin"]}), "contract build"),
    "manifest gone": Fault(
        "policy", lambda home: (home / "policy" / "mcp-tools.policy.json").unlink(), "Put the file there"
    ),
    "manifest is not JSON": Fault("policy", _write("policy/mcp-tools.policy.json", "{"), "Mend the file"),
    "manifest off its schema": Fault("policy", _row("lra_sign", **{"x-tier": "holy"}), "Mend these places"),
    "two rows": Fault("policy", _extra_row(name="lra_sign", **OWN_TOOL), "two rows for lra_sign"),
    "tier raised": Fault("policy", _row("dummy_experimental", **{"x-tier": "authoritative"}), "only lower a tier"),
    "rule of another tool": Fault(
        "policy", _row("lra_sign", **{"x-rules": [{"name": "r", "deny": "args.nothing == 1"}]}), "undeclared reference"
    ),
    "role added": Fault("policy", _row("lra_sign", **{"x-roles": ["builder", "committer", "admin"]}), "builder"),
    "role of nobody": Fault("policy", _row("lra_sign", **{"x-roles": ["pilot"]}), "there is no role pilot"),
    "role of ours": Fault(
        "policy", _manifest_with(roles=[{"name": "admin", "base": "builder"}]), "role admin is Toolgate's own"
    ),
    "other pack": Fault("policy", _row("lra_sign", **{"x-pack": "mine"}), "comes from pack lra"),
    "other record": Fault("policy", _row("analyze_dissonance", **{"x-adr": "ADR-0001"}), "ADR-"),
    "new row that binds": Fault(
        "policy",
        _extra_row(name="mine", **OWN_TOOL | {"x-tier": "authoritative"}),
        "an accepted ADR of this deployment",
    ),
    "announced on no day": Fault("policy", _manifest_with(deprecations=[LATE]), "Write a day like"),
    "hint that claims": Fault("policy", _row("lra_sign", **{"x-visibilityHint": "may block"}), "block"),
    "record not text": Fault("policy", _write("policy/adr/ADR-0100-x.md", b"\xff"), "not UTF-8"),
    "record too large": Fault("policy", _write("policy/adr/ADR-0100-x.md", "x" * 2_000_000), "larger than"),
    "record twice": Fault(
        "policy",
        _both(_write("policy/adr/ADR-0100-x.md", "# x\n"), _write("policy/adr/ADR-0100-y.md", "# y\n")),
        "is used by",
    ),
    "policy elsewhere": Fault("policy", _settings('[paths]\npolicy = "nowhere"\n'), "is not a directory"),
    "answered by nobody": Fault(
        "policy",
        _row("lra_sign", **{"x-rules": [{"name": "ask", "require-approval": "true", "answered-by": ["lead"]}]}),
        "lead may not answer requests",
    ),
    "webhook in the clear": Fault(
        "approvals", _settings('[approvals]\nwebhook = "http://hooks.example.org/x"\n'), "Give an https URL"
    ),
    "webhook unsigned": Fault(
        "approvals", _settings('[approvals]\nwebhook = "https://hooks.example.org/x"\n'), "no secret to sign with"
    ),
    "headers for a collector in the clear": Fault(
        "traces",
        _settings('[traces]\nendpoint = "http://10.0.0.5:4318/v1/traces"\nheaders = "env:OTLP"\n'),
        "without TLS",
        environ={"OTLP": "a=b"},
    ),
    "headers for a collector that are none": Fault(
        "traces",
        _settings('[traces]\nendpoint = "http://127.0.0.1:1/v1/traces"\nheaders = "env:OTLP"\n'),
        "traces.headers holds no headers",
        environ={"OTLP": "nonsense"},
    ),
    "proxy credentials gone": Fault(
        "secrets",
        _settings('[egress]\nproxy = "http://127.0.0.1:1"\nproxy_credentials = "file:proxy"\n'),
        "secrets/proxy (chmod 600)",
        serve=False,
    ),
    "store of no pack": Fault(
        "packs", _settings('[stores]\nconsnet = "sqlite:///x.db"\n'), "Did you mean stores.consent?"
    ),
    "unknown pack": Fault("packs", _settings('[packs]\nenabled = ["nosuch"]\n'), "nosuch"),
    "pack settings": Fault(
        "packs", _settings("[packs.governance]\nwrite_scope_allowed = []\n"), "Did you mean write_scopes_allowed?"
    ),
    "secret gone": Fault(
        "packs", _settings('[packs.consensus]\nnats = "file:broker"\nseal_every_s = 60\n'), "secrets/broker (chmod 600)"
    ),
    "variable gone": Fault(
        "packs", _settings('[packs.consensus]\nnats = "env:BROKER_URL"\nseal_every_s = 60\n'), "the variable BROKER_URL"
    ),
    "secret open": Fault(
        "packs",
        _both(
            _settings('[packs.consensus]\nnats = "file:broker"\nseal_every_s = 60\n'),
            _write("secrets/broker", "nats://x", 0o644),
        ),
        "chmod 600",
    ),
    "one key, two uses": Fault("packs", _settings('[packs.consensus]\nvoting_key = "audit.key"\n'), "audit.key"),
    "arbiter twice": Fault("packs", _settings(ARBITERS), "List every arbiter once"),
    "one key for both": Fault(
        "packs", _settings('[packs.consensus]\nseal_every_s = 60\nvrf_key = "arbiter.key"\n'), "one key; name two"
    ),
    "no voting key": Fault(
        "packs",
        _both(
            _settings("[packs.consensus]\nseal_every_s = 60\n"), lambda home: (home / "secrets/arbiter.key").unlink()
        ),
        "consensus keys --make",
    ),
    "kept of no tool": Fault("log", _settings('[ledger.keep]\nnosuch = ["x"]\n'), "there is no tool nosuch"),
    "kept of no argument": Fault("log", _settings('[ledger.keep]\nlra_init = ["x"]\n'), "has no argument x"),
    "log key": Fault("log", _write("secrets/audit.key", "nonsense"), "not an audit log key"),
    "log handovers": Fault("log", _write("secrets/audit.handovers", "{}"), "is damaged"),
    "log key open": Fault("log", lambda home: (home / "secrets/audit.key").chmod(0o644), "chmod 600"),
    "no log": Fault("log", _both(lambda home: shutil.rmtree(home / "runs"), _write("runs", "")), "directory"),
    "upstream nowhere": Fault("policy", _settings("[upstreams.x]\nconcurrency = 1\n"), "either url or command"),
    "upstream's secret": Fault(
        "policy", _settings('[upstreams.x]\ncommand = ["x", "ghp_16C7e42F292c6912E7710c83"]\n'), "secret"
    ),
    "pin edited": Fault(
        "policy",
        _both(_settings('[upstreams.x]\ncommand = ["x"]\n'), _write("policy/upstreams/x.pin.json", "{}")),
        "toolgate upstream adopt x again",
    ),
    "limits of no engine": Fault("limits", _settings('[limits]\nurl = "redis://h/0?no_such_option=1"\n'), "limits.url"),
    "certificate alone": Fault(
        "tls", _settings('[server]\ntls_certificate = "server.pem"\n'), "one of them is missing"
    ),
    "key in the workspace": Fault(
        "settings", _settings('[server]\ntls_certificate = "c"\ntls_key = "workspace/k"\n'), "tls_key lies inside"
    ),
    "no certificate": Fault("tls", _settings(TLS), "cannot be read: No such file"),
    "certificate expired": Fault("tls", _both(_settings(TLS), lambda home: Pair(home, days=-1, begins=-2)), "Renew it"),
    "certificate of another key": Fault("tls", _both(_settings(TLS), _mixed_pair), "is not the key of"),
    "certificate's key open": Fault(
        "tls", _both(_settings(TLS), lambda home: Pair(home).key.chmod(0o644)), "chmod 600"
    ),
    "certificate's key encrypted": Fault(
        "tls",
        _both(_settings(TLS), lambda home: Pair(home).key.write_bytes(pem(generate_private_key(SECP256R1()), b"x"))),
        "Write it without one",
    ),
    "keys in the workspace": Fault(
        "settings", _settings('[paths]\nsecrets = "workspace"\n'), "lies inside paths.workspace"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_p13_doctor_names_the_fault_and_the_fix(
    name: str, toolgate: Commands, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    fault.make(home)
    for variable, value in fault.environ.items():
        monkeypatch.setenv(variable, value)
    done = toolgate("doctor", "--json", "--home", str(home), "--port", "0")
    assert done.code == ExitCode.FAILED
    wrong = {row["check"]: f"{row['text']} {row['fix']}" for row in done.json["checks"] if not row["ok"]}
    assert fault.said in wrong[fault.check], wrong


@pytest.mark.guard
@pytest.mark.parametrize("name", FAULTS)
def test_p13_a_server_refuses_it_in_the_same_words(
    name: str, toolgate: Commands, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS[name]
    fault.make(home)
    if not fault.serve:
        return
    for variable, value in fault.environ.items():
        monkeypatch.setenv(variable, value)
    done = toolgate("serve", "--home", str(home), "--port", "0")
    assert done.code == ExitCode.FAILED
    assert fault.said in done.err


def test_p13_a_port_that_is_taken_and_an_address_that_is_not_ours(toolgate: Commands, home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        elsewhere = ("--server-host", "192.0.2.1", "--server-allowed-hosts", "gate.example", "--port", "0")
        for place in (("--port", str(taken.getsockname()[1])), elsewhere):
            assert toolgate("doctor", "--home", str(home), *place).code == ExitCode.FAILED
            assert process("serve", "--home", str(home), *place, cwd=home).code == ExitCode.FAILED


def test_p13_what_a_pack_says_of_the_machine_is_asked_too(
    toolgate: Commands, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extra that is not installed, a library that is not sound."""
    _settings('[packs.consensus]\nnats = "env:BROKER"\nseal_every_s = 60\n')(home)
    monkeypatch.setenv("BROKER", "nats://127.0.0.1:1")
    assert toolgate("doctor", "--home", str(home), "--port", "0").code == 0
    monkeypatch.setattr("toolgate.powers.bus.find_spec", lambda name: None)
    assert "toolgate[nats]" in toolgate("doctor", "--home", str(home), "--port", "0").out
    monkeypatch.setenv("TOOLGATE_LIMITS_URL", "redis://127.0.0.1:1")
    monkeypatch.setattr("toolgate.powers.limits.redis.find_spec", lambda name: None)
    assert "toolgate[redis]" in toolgate("doctor", "--home", str(home), "--port", "0").out

    monkeypatch.setenv("TOOLGATE_METRICS_ENABLED", "true")
    monkeypatch.setattr("toolgate.servers.observed.page.find_spec", lambda name: None)
    assert "toolgate[metrics]" in toolgate("doctor", "--home", str(home), "--port", "0").out

    def unsound() -> None:
        raise UnsoundLibrary("this libsodium is not sound")

    monkeypatch.setattr("toolgate.packs.consensus.domain.vrf.require_sound_library", unsound)
    assert "is not sound" in toolgate("doctor", "--home", str(home), "--port", "0").out


PLACES = {
    "enabled:check_stores": "store of no pack",
    "enabled:store_places": "store in two places",
    "enabled:key_uses": "one key, two uses",
    "enabled:pack_settings": "pack settings",
    "gate.redact:check_kept": "kept of no tool",
    "ledger.files:load_or_create_key": "log key",
    "ledger.handover:kept_notes": "log handovers",
    "ledger.opening:open_ledger": "no log",
    "ownership:_ids": "settings user",
    "ownership:check_owners": "home open",
    "packs.consensus.gossip.service:_open_node": "no voting key",
    "packs.consensus.arbiter.network:network_of": "arbiter twice",
    "packs.discovery:find_point": "unknown pack",
    "policy.adr:_read": "record too large",
    "policy.adr:load_directory": "record twice",
    "policy.bundle:load_decisions": "policy elsewhere",
    "policy.conditions:_compiled": "rule of another tool",
    "policy.contract:read_lock": "no lock",
    "policy.manifest:_check_answered": "answered by nobody",
    "policy.manifest:_check_known": "role of nobody",
    "policy.manifest:_check_narrower": "tier raised",
    "policy.manifest:_check_new": "new row that binds",
    "policy.manifest:_check_roles": "role added",
    "policy.manifest:_custom_roles": "role of ours",
    "policy.manifest:_deprecation": "announced on no day",
    "policy.manifest:parse_manifest": "two rows",
    "policy.manifest:read_json": "manifest gone",
    "policy.rules:check_start": "drift",
    "powers.approvals.webhook:open_webhook": "webhook in the clear",
    "powers.mcp.table:_command": "upstream's secret",
    "powers.mcp.table:read_table": "upstream nowhere",
    "powers.limits.redis:_connect": "limits of no engine",
    "powers.secrets:_from_file": "secret open",
    "powers.secrets:read": "secret gone",
    "servers.http_lifecycle:open_certificate": "certificate alone",
    "servers.tls.certificate:_check_key": "certificate's key open",
    "servers.tls.certificate:_content": "no certificate",
    "servers.tls.certificate:_expiry": "certificate expired",
    "servers.tls.certificate:_passphrase": "certificate's key encrypted",
    "servers.tls.certificate:reload": "certificate of another key",
    "telemetry.exporting:traces_to": "headers for a collector in the clear",
    "telemetry.exporting:headers_of": "headers for a collector that are none",
    "upstreams:read_pins": "pin edited",
}
"""Where a start is refused -> a fault above that gets there."""
ASKED_OTHERWISE = {
    "cli.": "`serve` shares only `require_workspace` with other commands: `no workspace`",
    "config:": "doctor reads the settings by the call that `serve` makes: `settings unknown`",
    "servers.http_lifecycle:_bind": "test_p13_a_port_that_is_taken...",
    "powers.bus:require_client": "test_p13_what_a_pack_says...",
    "packs.consensus.gossip.service:check_start": "test_p13_what_a_pack_says...",
    "packs.consensus.cli.rounds:": "commands for people",
    "packs.discovery:import_door": "a broken package; doctor loads packs by the call that `serve` makes: `unknown pack`",
    "packs.loader:require_sound": "the same",
    "enabled:_made": "the same, for packs that are made of data",
    "policy.adr:parse": "a name that the directory's pattern has let through; `record not text` gets there",
    "ledger.handover:": "`audit rotate-key`, a command for people",
    "policy.health:": "`contract health`, a command for people",
    "servers.http_lifecycle:_several": "there is no room for a temporary file, which doctor makes in more than one check",
    "servers.observed.page:require_client": "test_p13_what_a_pack_says...",
    "observing:open_traces": "test_p13_what_a_pack_says...",
    "ledger.files:make": "a run id that only a program that embeds the ledger can choose",
    "powers.sql:_url": "the settings refuse such a URL before",
    "powers.limits.redis:_connection_of": "the settings refuse most of these before; `limits of no engine` is told the same",
    "powers.limits.redis:__init__": "test_p13_what_a_pack_says...",
    "powers.keys:__init__": "the settings refuse such a place before: `keys in the workspace`",
    "powers.mcp.table:": "each key of a table is read by the call that reads the others: `upstream nowhere`",
    "servers.lifecycle:run": "another operating system",
}


REFUSALS = ("StartRefused", "SettingsError")


def refusals() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        text = path.read_text()
        for function in ast.walk(ast.parse(text)) if any(name in text for name in REFUSALS) else ():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    raised = node.exc if isinstance(node, ast.Raise) else None
                    if isinstance(raised, ast.Call) and ast.unparse(raised.func) in REFUSALS:
                        yield f"{module}:{function.name}"


def test_p13_every_place_that_refuses_a_start_is_asked_of_doctor() -> None:
    found = set(refusals())
    assert len(found) > 30
    assert {place for place in found if place not in PLACES and not place.startswith(tuple(ASKED_OTHERWISE))} == set()
    assert set(PLACES) <= found
    assert set(PLACES.values()) <= FAULTS.keys()


def test_doctor_says_who_answers_requests_and_of_which_role_nobody_has_a_key(toolgate: Commands, home: Path) -> None:
    def told() -> str:
        done = toolgate("doctor", "--home", str(home), "--port", "0", "--json")
        return next(str(found["text"]) for found in done.json["checks"] if found["check"] == "answers")

    assert told() == "requests for approval are answered by admin"
    rules = [{"name": "ask", "require-approval": "true", "answered-by": ["lead"]}]
    _manifest_with(roles=[{"name": "lead", "base": "builder", "answers": True}])(home)
    _row("lra_sign", **{"x-rules": rules})(home)
    assert told() == "requests for approval are answered by admin and lead, nobody has a key of lead"
    assert toolgate("keys", "create", "--role", "lead", "--home", str(home)).code == 0
    assert told() == "requests for approval are answered by admin and lead"
