"""Where settings come from, and what refuses to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from toolgate.config import OTHER_VARIABLES, ignored_variables, load_settings, read_secret
from toolgate.errors import SettingsError
from toolgate.settings import SPECS, store_setting


def write(home: Path, text: str) -> Path:
    (home / "toolgate.toml").write_text(text)
    return home


@pytest.mark.req("000-D-concurrency-default", "000-D-output-limit")
def test_an_empty_home_gives_the_defaults_of_the_documents(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {})
    assert settings.file is None
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8000)
    assert settings.limits.concurrency_per_caller == 10
    assert settings.limits.concurrency_total == 128
    assert settings.limits.rate_per_minute == 0
    assert settings.limits.body_bytes == 1024 * 1024
    assert settings.limits.text_bytes == 65536
    assert settings.ledger.checkpoint_records == 256
    assert settings.packs.enabled == ("consensus", "governance", "library", "lra")
    assert not settings.deterministic_ids
    assert {row.source for row in settings.resolved()} == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    write(tmp_path, "[server]\nport = 1111\nmax_headers = 11\ndrain_seconds = 1\n")
    environ = {"TOOLGATE_SERVER_PORT": "2222", "TOOLGATE_SERVER_MAX_HEADERS": "22"}
    settings = load_settings(tmp_path, {"server.port": "3333"}, environ)
    assert settings.server.port == 3333
    assert settings.server.max_headers == 22
    assert settings.server.drain_seconds == 1.0
    sources = {row.spec.key: row.source for row in settings.resolved()}
    assert sources["server.port"] == "flag"
    assert sources["server.max_headers"] == "environment"
    assert sources["server.drain_seconds"] == "file"
    assert sources["server.host"] == "default"


EXAMPLES = {
    "text": "localhost",
    "whole": 64,
    "number": 1.5,
    "switch": True,
    "words": ["one", "two"],
    "place": "somewhere",
}
SPECIAL = {
    "egress.proxy": "http://proxy.example:3128",
    "egress.proxy_credentials": "file:proxy",
    "idempotency.keep_seconds": 3600.0,
    "idempotency.url": "postgresql://h/d",
    "limits.concurrency_when_unreachable": "share",
    "limits.rate_when_unreachable": "share",
    "limits.url": "rediss://h:1/0",
    "log.format": "json",
    "log.level": "info",
    "mcp.text": "envelope",
    "metrics.listen": "[::1]:9464",
    "traces.endpoint": "https://collector.example/v1/traces",
    "traces.sample": 0.5,
    "traces.headers": "file:otlp",
    "server.workers": "4",
    "server.trusted_proxies": ["10.0.0.5", "2001:db8::/32"],
}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.key)
def test_every_setting_can_be_set_by_file_by_variable_and_by_flag(spec, tmp_path: Path) -> None:
    value = SPECIAL.get(spec.key, EXAMPLES[spec.kind])
    if spec.kind == "whole":
        value = max(value, spec.low)
    toml = str(value).lower() if isinstance(value, bool) else repr(value)
    table, _, name = spec.key.rpartition(".")
    by_file = tmp_path / "file"
    by_file.mkdir()
    write(by_file, f"[{table}]\n{name} = {toml}\n" if table else f"{name} = {toml}\n")
    text = ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
    loads = {
        "file": load_settings(by_file, {}, {}),
        "environment": load_settings(tmp_path, {}, {spec.variable: text}),
    }
    if not spec.secret:
        loads["flag"] = load_settings(tmp_path, {spec.key: text}, {})
    for source, settings in loads.items():
        assert settings.sources[spec.key] == source
        expected = tuple(value) if isinstance(value, list) else settings.home / value if spec.kind == "place" else value
        assert settings.value(spec.key) == expected


@pytest.mark.parametrize("name", ["consent", "anything_else"])
def test_a_store_can_be_set_by_file_and_by_variable(name: str, tmp_path: Path) -> None:
    by_file = tmp_path / "file"
    by_file.mkdir()
    write(by_file, f"[stores]\n{name} = 'postgresql://u@h/d'\n")
    for settings in (
        load_settings(by_file, {}, {}),
        load_settings(tmp_path, {}, {f"TOOLGATE_STORES_{name.upper()}": "postgresql://u@h/d"}),
    ):
        assert settings.stores.urls == {name: "postgresql://u@h/d"}
        assert [row.shown for row in settings.resolved() if row.spec.key == f"stores.{name}"] == ["(set, hidden)"]


@pytest.mark.parametrize(
    "spec", [store_setting("consent", "x"), store_setting("anything_else", "x")], ids=["ours", "theirs"]
)
def test_a_secret_is_no_flag_and_the_message_says_where_it_belongs(spec, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(tmp_path, {spec.key: "postgresql://u:geheim@h/d"}, {})
    assert str(refused.value).startswith(f"flag {spec.flag}: {spec.key} may hold a password")
    assert f"Set {spec.variable} or {spec.variable}_FILE" in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_every_number_has_bounds_and_every_setting_says_what_it_does() -> None:
    for spec in SPECS:
        assert spec.what, spec.key
        if spec.kind in ("whole", "number"):
            assert spec.unit, spec.key
            assert spec.low is not None, spec.key
            assert spec.high is not None, spec.key


WRONG_FILES = {
    "unknown key": ("[server]\nprot = 1\n", "server.prot", "server.port"),
    "unknown key without a table": ("deterministic_id = true\n", "deterministic_id", "deterministic_ids"),
    "unknown table": ("[sever]\nport = 1\n", "sever", "mean server?"),
    "table as a value": ("server = 1\n", "server", "[server]"),
    "text for a number": ('[server]\nport = "x"\n', "server.port", "whole number"),
    "bool for a number": ("[server]\nport = true\n", "server.port", "whole number"),
    "float for a whole number": ("[server]\nport = 1.0\n", "server.port", "whole number"),
    "number out of range": ("[server]\nport = 70000\n", "server.port", "from 0 to 65535"),
    "infinity": ("[server]\ndrain_seconds = inf\n", "server.drain_seconds", "from 0 to 600"),
    "not a number": ("[server]\ndrain_seconds = nan\n", "server.drain_seconds", "from 0 to 600"),
    "number for text": ("[server]\nhost = 1\n", "server.host", "text"),
    "control character in text": ('[server]\nhost = "a\\u0000b"\n', "server.host", "text"),
    "mixed list": ('[server]\nallowed_hosts = ["a", 1]\n', "server.allowed_hosts", "list of texts"),
    "number for a switch": ("deterministic_ids = 1\n", "deterministic_ids", "true or false"),
    "empty path": ('[paths]\nkeys = ""\n', "paths.keys", "path"),
    "table instead of a value": ("[server.port]\nx = 1\n", "server.port", "whole number"),
    "not TOML": ("[server\n", "not TOML", "line 1"),
    "duplicate key": ("[server]\nport = 1\nport = 2\n", "not TOML", "line 3"),
    "body above the wire limit": ("[limits]\nbody_bytes = 2097152\n", "limits.body_bytes", "from 1024 to 1048576"),
    "pack that is not enabled": ("[packs.goverance]\nx = 1\n", "packs.goverance", "packs.governance"),
    "unknown key in packs": ('[packs]\nenable = ["x"]\n', "packs.enable", "packs.enabled"),
    "pack named twice": ('[packs]\nenabled = ["a", "a"]\n', "twice", "once"),
    "pack name of another form": ('[packs]\nenabled = ["../a"]\n', "not a pack name", "my-pack"),
    "wide address without hosts": ('[server]\nhost = "0.0.0.0"\n', "server.host", "Host"),
    "wide IPv6 address without hosts": ('[server]\nhost = "::"\n', "server.host", "Host"),
    "another database": ('[stores]\nconsent = "mysql://u:geheim@h/d"\n', "stores.consent", "postgresql://"),
    "one key may hold all calls": ("[limits]\nconcurrency_per_caller = 128\n", "concurrency_per_caller", "one more"),
    "keys inside the workspace": ('[paths]\nkeys = "workspace/k/c.json"\n', "paths.keys", "Move"),
    "home is the workspace": ('[paths]\nworkspace = "."\n', "workspace", "Move"),
}


@pytest.mark.parametrize(("text", "fault", "fix"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_wrong_file_refuses_with_one_line_for_the_fault_and_one_for_the_fix(
    text: str, fault: str, fix: str, tmp_path: Path
) -> None:
    write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path, {}, {})
    said = str(caught.value)
    first, second = said.split("\n")
    assert fault in first
    assert fix in said
    assert second
    assert "geheim" not in said


WRONG_VARIABLES = {
    "misspelt": ({"TOOLGATE_SERVER_PROT": "1"}, "TOOLGATE_SERVER_PROT", "TOOLGATE_SERVER_PORT"),
    "underscored digits": ({"TOOLGATE_SERVER_PORT": "1_0"}, "TOOLGATE_SERVER_PORT", "whole number"),
    "blank before": ({"TOOLGATE_SERVER_PORT": " 1"}, "TOOLGATE_SERVER_PORT", "whole number"),
    "digits of another script": ({"TOOLGATE_SERVER_PORT": "１"}, "TOOLGATE_SERVER_PORT", "whole number"),
    "empty number": ({"TOOLGATE_SERVER_PORT": ""}, "TOOLGATE_SERVER_PORT", "whole number"),
    "a switch of another word": ({"TOOLGATE_DETERMINISTIC_IDS": "yes"}, "TOOLGATE_DETERMINISTIC_IDS", "true or false"),
    "a file for what is not a secret": (
        {"TOOLGATE_SERVER_PORT_FILE": "/x"},
        "TOOLGATE_SERVER_PORT_FILE",
        "TOOLGATE_SERVER_PORT",
    ),
    "a pack that is not enabled": (
        {"TOOLGATE_PACKS_OTHER_REGISTRY": "x"},
        "TOOLGATE_PACKS_OTHER_REGISTRY",
        "TOOLGATE_PACKS",
    ),
    "a pack without a key": ({"TOOLGATE_PACKS_GOVERNANCE_": "x"}, "TOOLGATE_PACKS_GOVERNANCE_", "TOOLGATE_PACKS"),
    "both forms of a secret": (
        {"TOOLGATE_STORES_CONSENT": "sqlite:///x", "TOOLGATE_STORES_CONSENT_FILE": "/x"},
        "TOOLGATE_STORES_CONSENT_FILE",
        "Keep one",
    ),
    "a secret's file that is not there": (
        {"TOOLGATE_STORES_CONSENT_FILE": "/nowhere/at/all"},
        "TOOLGATE_STORES_CONSENT_FILE",
        "path",
    ),
}


@pytest.mark.parametrize(("environ", "fault", "fix"), WRONG_VARIABLES.values(), ids=WRONG_VARIABLES)
def test_a_wrong_variable_refuses_and_is_named(environ: dict[str, str], fault: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path, {}, environ)
    assert fault in str(caught.value).split("\n")[0]
    assert fix in str(caught.value)


def test_an_unknown_flag_key_refuses(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"server\.prot"):
        load_settings(tmp_path, {"server.prot": 1}, {})


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {"server.port": None}, {}).sources["server.port"] == "default"


def test_variables_of_others_and_of_an_orchestrator_are_left_alone(tmp_path: Path) -> None:
    environ = dict.fromkeys(OTHER_VARIABLES, "x") | {
        "TOOLGATE_PORT": "tcp://10.0.0.1:8000",
        "TOOLGATE_PORT_8000_TCP_ADDR": "10.0.0.1",
        "TOOLGATE_SERVICE_HOST": "10.0.0.1",
        "TOOLGATE_SERVICE_PORT_HTTP": "8000",
        "HOME": "/root",
    }
    assert {row.source for row in load_settings(tmp_path, {}, environ).resolved()} == {"default"}


@pytest.mark.parametrize(
    ("name", "value"),
    {
        "TOOLGATE_VERSION": "1.2.3",
        "TOOLGATE_REVISION": "debug",
        "TOOLGATE_NAME": "edge",
        "TOOLGATE_SECRET": "edge",
        "TOOLGATE_FILE": "edge",
        "TOOLGATE_MCP_SERVICE_HOST": "10.0.0.1",
        "TOOLGATE_MCP_PORT": "tcp://10.0.0.1:8000",
        "TOOLGATE_MCP_PORT_8000_TCP_PROTO": "tcp",
        "TOOLGATE_SERVER_SERVICE_PORT_HTTP": "8000",
        "TOOLGATE_SERVER_PORT": "tcp://10.0.0.1:8000",
        "TOOLGATE_PACKS_SERVICE_HOST": "10.0.0.1",
    }.items(),
)
def test_p19_an_operators_own_variables_do_not_stop_a_server(name: str, value: str, tmp_path: Path) -> None:
    assert {row.source for row in load_settings(tmp_path, {}, {name: value}).resolved()} == {"default"}
    # What Kubernetes sets in every container is not news; what somebody wrote may have been meant for us.
    assert ignored_variables({name: value}) == ([name] if value in ("1.2.3", "debug", "edge") else [])


@pytest.mark.parametrize(
    ("name", "meant"),
    {
        "TOOLGATE_HOEM": "TOOLGATE_HOME",
        "TOOLGATE_HOST": "TOOLGATE_SERVER_HOST",
        "TOOLGATE_PORT": "TOOLGATE_SERVER_PORT",
        "TOOLGATE_DRAIN_SECONDS": "TOOLGATE_SERVER_DRAIN_SECONDS",
        "TOOLGATE_SERVR_PORT": "TOOLGATE_SERVER_PORT",
        "TOOLGATE_LIMITS_RATE": "TOOLGATE_LIMITS_RATE_PER_MINUTE",
        "TOOLGATE_DETERMINISTIC_ID": "TOOLGATE_DETERMINISTIC_IDS",
        "TOOLGATE_API_KEYFILE": "TOOLGATE_API_KEY_FILE",
    }.items(),
)
def test_p19_a_misspelt_setting_still_refuses_and_names_what_was_meant(name: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"environment: there is no setting {name}\.\nDid you mean {meant}\?"):
        load_settings(tmp_path, {}, {name: "9000"})
    assert ignored_variables({name: "9000"}) == []


def test_relative_paths_are_relative_to_the_home_and_absolute_ones_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    home = tmp_path / "home"
    home.mkdir()
    write(home, f'[paths]\nworkspace = "w"\nruns = "{elsewhere}"\n')
    settings = load_settings(home, {}, {})
    assert settings.home == home
    assert settings.paths.workspace == home / "w"
    assert settings.paths.runs == elsewhere
    assert settings.paths.keys == home / "keys" / "callers.json"
    assert settings.ledger.anchor_file is None


def test_the_home_comes_from_the_flag_then_the_variable_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_settings(one, {}, {"TOOLGATE_HOME": str(two)}).home == one
    assert load_settings(None, {}, {"TOOLGATE_HOME": str(two)}).home == two
    assert load_settings(None, {}, {}).home == tmp_path


def test_a_home_that_is_not_there_refuses(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="toolgate init"):
        load_settings(tmp_path / "none", {}, {})


@pytest.mark.parametrize("kind", ["dangling link", "directory", "too large"])
def test_a_settings_file_that_cannot_be_read_is_not_taken_for_an_absent_one(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "toolgate.toml"
    if kind == "dangling link":
        file.symlink_to(tmp_path / "none")
    elif kind == "directory":
        file.mkdir()
    else:
        file.write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(SettingsError, match=r"toolgate\.toml"):
        load_settings(tmp_path, {}, {})


def test_the_packaged_policy_holds_only_when_nobody_named_one(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}, {}).paths.policy is None
    assert load_settings(tmp_path, {"paths.policy": "policy"}, {}).paths.policy == tmp_path / "policy"
    (tmp_path / "policy").mkdir()
    assert load_settings(tmp_path, {}, {}).paths.policy == tmp_path / "policy"


def test_a_link_into_the_workspace_does_not_hide_the_keys_there(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "keys").symlink_to(tmp_path / "workspace")
    with pytest.raises(SettingsError, match=r"paths\.keys"):
        load_settings(tmp_path, {}, {})


def test_a_packs_table_is_kept_as_written_and_reachable_from_every_source(tmp_path: Path) -> None:
    write(tmp_path, '[packs]\nenabled = ["lra", "lra-extra"]\n[packs.lra]\nregistry = "r.json"\ndepth = 3\n')
    environ = {
        "TOOLGATE_PACKS_LRA_DEPTH": "4",
        "TOOLGATE_PACKS_LRA_EXTRA_NAMES": '["a"]',
        "TOOLGATE_PACKS_LRA_TEXT": "a, b",
    }
    settings = load_settings(tmp_path, {"packs.lra.text": "flag"}, environ)
    assert settings.packs.tables == {
        "lra": {"registry": "r.json", "depth": 4, "text": "flag"},
        "lra-extra": {"names": ["a"]},
    }
    sources = {row.spec.key: row.source for row in settings.resolved()}
    assert sources["packs.lra.registry"] == "file"
    assert sources["packs.lra.depth"] == "environment"
    assert sources["packs.lra.text"] == "flag"


def test_lists_from_text_take_commas_or_a_toml_array(tmp_path: Path) -> None:
    def hosts(text: str) -> tuple[str, ...]:
        return load_settings(tmp_path, {"server.allowed_hosts": text}, {}).server.allowed_hosts

    assert hosts("a.example, b.example:8000") == ("a.example", "b.example:8000")
    assert hosts('["a,b", "c"]') == ("a,b", "c")
    assert hosts("") == ()
    with pytest.raises(SettingsError):
        hosts("[1]")


def test_a_wide_address_is_served_once_its_hosts_are_named(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {"server.host": "0.0.0.0", "server.allowed_hosts": "gate.example"}, {})
    assert settings.server.host == "0.0.0.0"


def test_a_secret_is_read_from_its_file_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://u:geheim@db/x\n")
    settings = load_settings(tmp_path, {}, {"TOOLGATE_STORES_CONSENT_FILE": str(secret)})
    assert settings.stores.urls["consent"] == "postgresql://u:geheim@db/x"
    assert "geheim" not in str([row.shown for row in settings.resolved()])
    assert read_secret("TOOLGATE_API_KEY", {"TOOLGATE_API_KEY_FILE": str(secret)}) == "postgresql://u:geheim@db/x"
    assert read_secret("TOOLGATE_API_KEY", {}) is None


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, {}, {})
    with pytest.raises(AttributeError):
        settings.server.port = 1  # type: ignore[misc]  # the point of the test


@given(
    st.dictionaries(
        st.sampled_from([spec.variable for spec in SPECS] + ["TOOLGATE_X", "TOOLGATE_PACKS_A_B"]), st.text()
    )
)
def test_any_environment_gives_settings_or_a_fault_with_its_fix(environ: dict[str, str]) -> None:
    try:
        settings = load_settings(Path("/"), {}, environ)
    except SettingsError as fault:
        lines = str(fault).split("\n")
        event("refused")
    else:
        lines = [row.spec.key for row in settings.resolved()][:2]
        event("loaded")
    assert len(lines) == 2


# D8: tables under the names that existing deployments have


TABLES = {"fpTableName": ("FP_TABLE_NAME", "fp-prod"), "consentTableName": ("CONSENT_TABLE_NAME", "consent-prod")}


def test_d8_the_documents_names_are_read_from_file_variable_and_flag(tmp_path: Path) -> None:
    write(tmp_path, 'fpTableName = "fp-prod"\nconsentTableName = "consent-prod"\nawsRegion = "eu-west-1"\n')
    by_file = load_settings(tmp_path, {}, {})
    assert (by_file.fpTableName, by_file.consentTableName, by_file.awsRegion) == (
        "fp-prod",
        "consent-prod",
        "eu-west-1",
    )
    variables = {variable: value + "-2" for variable, value in TABLES.values()} | {"AWS_REGION": "us-east-1"}
    by_variable = load_settings(tmp_path, {}, variables)
    assert (by_variable.fpTableName, by_variable.consentTableName) == ("fp-prod-2", "consent-prod-2")
    assert (by_variable.awsRegion, by_variable.sources["awsRegion"]) == ("us-east-1", "environment")
    assert load_settings(tmp_path, {"fpTableName": "fp-prod-3"}, variables).fpTableName == "fp-prod-3"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('fpTableName = "a/b"', "fpTableName is no name of a DynamoDB table"),
        ('consentTableName = "ab"', "consentTableName is no name of a DynamoDB table"),
        ('awsRegion = "http://169.254.169.254/"', "awsRegion is no region"),
        ('[stores]\nfalse_positives = "dynamodb://fp"', "DynamoDB tables are named by fpTableName"),
        ('fpTablename = "fp-prod"', "Did you mean fpTableName?"),
    ],
)
def test_d8_a_table_or_region_that_is_none_is_refused_with_the_fix(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path, text + "\n")
    with pytest.raises(SettingsError) as refused:
        load_settings(tmp_path, {}, {})
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ['fpTableName = "mine"', 'consentTableName = "mine"', 'awsRegion = "eu-west-1"'])
def test_d8_a_directory_that_nobody_chose_names_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A repository could bring its own consent."""
    write(tmp_path, text + "\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="reaches beyond"):
        load_settings(None, {}, {})
    assert load_settings(tmp_path, {}, {}).home == tmp_path


def test_d8_our_prefix_before_a_documents_name_is_told_the_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"Did you mean FP_TABLE_NAME\?"):
        load_settings(tmp_path, {}, {"TOOLGATE_FP_TABLE_NAME": "fp-prod"})


@pytest.mark.parametrize("text", ["9464", "localhost", "http://h:1", "h:123456"])
def test_an_address_without_its_form_is_refused_with_an_example(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"metrics\.listen is not an address with a port\.\nGive one like 127"):
        load_settings(tmp_path, {"metrics.listen": text}, {})


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4318", "grpc://h:1", "http://u:p@h/v1/traces", "http://h/v1?key=secret"]
)
def test_a_collectors_address_is_a_plain_url(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"traces\.endpoint"):
        load_settings(tmp_path, {"traces.endpoint": endpoint}, {})
