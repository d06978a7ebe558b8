"""Where settings come from: the first of flag, `TOOLGATE_*` variable, `toolgate.toml`, default.

An unknown name, a value of the wrong kind or out of range refuses to start: a misspelt limit that is silently ignored
is not a limit. Which settings there are is `toolgate.settings`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import SettingsError
from toolgate.model.suggest import did_you_mean
from toolgate.settings import (
    DEFAULT_PACKS,
    SPECS,
    STORES,
    TABLES,
    LedgerSettings,
    PackSettings,
    Settings,
    StoreSettings,
    store_setting,
)
from toolgate.settings.outward import EgressSettings
from toolgate.settings.spec import PREFIX, Kind, Source, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Settings", "free_value", "ignored_variables", "load_settings", "read_secret", "require_home"]

FILE_NAME: Final = "toolgate.toml"
MAX_FILE_BYTES: Final = 1024 * 1024
"""A settings file or a `*_FILE` secret larger than this is not one."""

OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "TOOLGATE_HOME": "the home directory, like --home",
    "TOOLGATE_API_KEY": "the caller's key for `toolgate stdio` and `toolgate call`",
    "TOOLGATE_API_KEY_FILE": "a file that holds that key",
    "TOOLGATE_URL": "the server that `toolgate call` talks to, like --url",
    "TOOLGATE_TRUSTED_USER": "a user, besides root and the server's own, who may own the home, its settings and its policy",
    "TOOLGATE_TRUSTED_GROUP": "a group that may write them: for a team that shares a home",
    "TOOLGATE_TRACEBACK": "1 shows where Toolgate itself failed",
    "TOOLGATE_REQUIRE": "the test suite: things that must not be skipped",
    "TOOLGATE_VECTORS": "the test suite: a folder of published test vectors",
    "TOOLGATE_PAPERS": "the test suite: a folder of published papers to build",
}
"""Variables that are not settings, and what they are for."""
_ORCHESTRATOR: Final = re.compile(
    r"TOOLGATE_([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT: Final = re.compile(r"(tcp|udp|sctp)://[^/]+:[0-9]+")
"""Kubernetes sets these in every container for a Service called `toolgate` or `toolgate-...`; they are not meant for us.
`TOOLGATE_PORT` and, for a Service called `toolgate-server`, `TOOLGATE_SERVER_PORT` are told by their value."""

_DATABASE_URL: Final = re.compile(r"(postgresql|sqlite)(\+[a-z0-9]+)?://|$")
_PACK_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_STORE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
_STORE_VARIABLE: Final = PREFIX + "STORES_"
_PROXY_URL: Final = re.compile(r"http://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}/?")
_REFERENCE: Final = re.compile(r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_TABLES: Final = ("fpTableName", "consentTableName")
_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,32}")
_REACHING: Final = frozenset(
    {
        "ledger.anchor_command",
        "egress.proxy",
        "egress.proxy_credentials",
        "traces.endpoint",
        "traces.headers",
        "limits.url",
        "idempotency.url",
        *_TABLES,
        "awsRegion",
    }
)
_LIMITS_URL: Final = re.compile(r"(redis|rediss|valkey|valkeys|unix)://", re.ASCII)
"""Settings that run a program or send something elsewhere."""

_KINDS: Final[Mapping[Kind, str]] = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "words": "a list of texts",
    "place": "a path",
}
_KEEP: Final = "ledger.keep."
"""`[ledger.keep]` has a key for each tool, and so no `Spec` and no flag of its own: --set takes it."""
_KEEP_VARIABLE: Final = f"{PREFIX}LEDGER_KEEP_"
_MADE_APART: Final = frozenset({"packs", "stores", "ledger"})
"""Tables that hold more than their settings."""
_UPSTREAMS: Final = "upstreams"
"""`[upstreams.NAME]`: a table for each MCP server that somebody else wrote, in the file only."""
_BY_KEY: Final = {spec.key: spec for spec in SPECS}
_BY_VARIABLE: Final = {spec.variable: spec for spec in SPECS}


def load_settings(
    home: Path | None, flags: Mapping[str, object], environ: Mapping[str, str], *, chosen: bool | None = None
) -> Settings:
    """Read, merge and check every source.

    `flags` maps keys (`server.port`, `packs.NAME.KEY`) to values; None means not given. `chosen`: somebody named this
    home; otherwise it is only where a command was started, perhaps in a stranger's repository, and may not reach beyond it.
    Raises: SettingsError: names the key, where it stands, and the fix.
    """
    if chosen is None:
        chosen = home is not None or bool(environ.get(PREFIX + "HOME"))
    place = (home or Path(environ.get(PREFIX + "HOME") or ".")).expanduser().absolute()
    if not place.is_dir():
        raise SettingsError(f"The home directory {place} does not exist.\nMake one: toolgate init {place}")
    # lexists: a dangling link is a fault to report, not a reason for defaults.
    file = place / FILE_NAME if os.path.lexists(place / FILE_NAME) else None
    given: dict[str, tuple[Source, Any]] = {}
    # Weakest first; each stronger source overwrites.
    given |= {key: ("file", value) for key, value in (_from_file(file) if file else {}).items()}
    given |= {key: ("environment", value) for key, value in _from_environment(environ).items()}
    by_flag: dict[str, tuple[Source, Any]] = {key: ("flag", value) for key, value in _from_flags(flags).items()}
    _, enabled = (given | by_flag).get("packs.enabled", ("default", DEFAULT_PACKS))
    given |= {key: ("environment", value) for key, value in _packs_from_environment(environ, enabled).items()}
    settings = _assembled(place, file, given | by_flag)
    _check_together(settings)
    if not chosen:
        _check_unchosen(settings)
    return settings


def is_home(settings: Settings) -> bool:
    return settings.file is not None or settings.paths.workspace.is_dir()


def require_home(settings: Settings) -> Settings:
    """The same settings, if they are those of a home; else a command would make `keys/` or `state/` wherever it was started.

    A home has toolgate.toml; one that is configured by variables alone has at least its workspace. Raises: SettingsError.
    """
    if not is_home(settings):
        raise SettingsError(
            f"{settings.home} is not a home of Toolgate: there is no {FILE_NAME} and no workspace.\n"
            "Name yours with --home DIR or TOOLGATE_HOME, or make one: toolgate init DIR"
        )
    return settings


def _from_flags(flags: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in flags.items():
        if value is None:
            continue
        spec = _spec_for(key)
        if spec is not None and spec.secret:
            raise SettingsError(
                f"flag {spec.flag}: {key} may hold a password, and every user of this machine can read flags.\n"
                f"Set {spec.variable} or {spec.variable}_FILE, or write it into {FILE_NAME}."
            )
        found[key] = _checked(key, value, f"flag {_flag(key)}")
    return found


def read_secret(name: str, environ: Mapping[str, str]) -> str | None:
    """The value of a secret variable, or the content of the file that `NAME_FILE` names. Raises: SettingsError."""
    by_file = environ.get(name + "_FILE")
    if by_file is None:
        return environ.get(name)
    if name in environ:
        raise SettingsError(f"{name} and {name}_FILE are both set.\nKeep one of them.")
    try:
        return _read(Path(by_file)).rstrip("\r\n")
    except (OSError, ValueError):
        raise SettingsError(
            f"{name}_FILE names a file that cannot be read as text.\nCheck its path and permissions."
        ) from None


def _read(path: Path) -> str:
    """Raises: OSError, ValueError: too large, or not UTF-8."""
    with path.open("rb") as opened:
        raw = opened.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    return raw.decode()


def _from_file(file: Path) -> dict[str, Any]:
    """Flat keys of toolgate.toml, each checked."""
    import tomllib  # noqa: PLC0415 (only when there is a file)

    try:
        document = tomllib.loads(_read(file))
    except OSError as fault:
        raise SettingsError(
            f"{FILE_NAME} cannot be read: {fault.strerror}.\nCheck that it is a file you may read."
        ) from None
    except (ValueError, RecursionError) as fault:
        raise SettingsError(f"{FILE_NAME} is not TOML: {fault}.\nCorrect that line.") from None
    found: dict[str, Any] = {}
    for name, value in document.items():
        if name == _UPSTREAMS and isinstance(value, dict):
            found[name] = value
        elif name not in TABLES:
            found[name] = _checked(name, value, FILE_NAME)
        elif not isinstance(value, dict):
            raise SettingsError(f"{FILE_NAME}: {name} is a table, not a value.\nWrite [{name}] on a line of its own.")
        else:
            found |= _from_table(name, value)
    return found


def _from_table(table: str, content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in content.items():
        if f"{table}.{name}." == _KEEP and isinstance(value, dict):
            found |= {
                _KEEP + tool: _checked(_KEEP + tool, chosen, f"{FILE_NAME}, [ledger.keep]")
                for tool, chosen in value.items()
            }
        elif table == "packs" and isinstance(value, dict):
            found |= {f"packs.{name}.{key}": item for key, item in value.items()}
        else:
            found[f"{table}.{name}"] = _checked(f"{table}.{name}", value, f"{FILE_NAME}, [{table}]")
    return found


def _meant(environ: Mapping[str, str]) -> list[str]:
    """Our variables that are there, in order: neither somebody else's, nor those that are not settings."""
    ours = [name for name in sorted(environ) if name.startswith(PREFIX) or name in _BY_VARIABLE]
    return [name for name in ours if not _is_others(name, environ[name])]


def _is_others(name: str, value: str) -> bool:
    if name in OTHER_VARIABLES or _ORCHESTRATOR.fullmatch(name):
        return True
    return name.endswith("_PORT") and _SERVICE_PORT.fullmatch(value) is not None


def ignored_variables(environ: Mapping[str, str]) -> list[str]:
    """`TOOLGATE_*` variables that are neither ours nor near one of ours: an operator's own, and only worth a warning."""
    return [name for name in _meant(environ) if _spec_of(name) is None and _misspelt(name) is None]


def _spec_of(name: str) -> Spec | None:
    """The setting that a variable, or the `_FILE` form of a secret's, names."""
    spec = _BY_VARIABLE.get(name) or _BY_VARIABLE.get(name.removesuffix("_FILE"))
    if spec is None and name.startswith(_STORE_VARIABLE):
        spec = _spec_for(STORES + name.removeprefix(_STORE_VARIABLE).removesuffix("_FILE").lower())
    return spec if spec is not None and (spec.variable == name or spec.secret) else None


def _spec_for(key: str) -> Spec | None:
    """What the setting of this key is. Any store may be named: which there are is known when the packs are loaded."""
    if key.startswith(STORES) and _STORE_NAME.fullmatch(key.removeprefix(STORES)):
        return store_setting(key.removeprefix(STORES), "a database")
    return _BY_KEY.get(key)


def _misspelt(name: str) -> SettingsError | None:
    """What is said of an unknown variable that looks like a setting: of one of our tables, without its table, or misspelt."""
    known = [*_BY_VARIABLE, *OTHER_VARIABLES]
    if any(name.startswith(f"{PREFIX}{table.upper()}_") for table in TABLES):
        return _unknown(name, "environment", [each for each in known if each.startswith(f"{name}_")] or known)
    stem = name.removeprefix(PREFIX)
    meant = [spec.variable for key, spec in _BY_KEY.items() if key.partition(".")[2] == stem.lower()]
    near = [each for each in known if _is_near(stem, each.removeprefix(PREFIX))]
    return _unknown(name, "environment", meant or near) if meant or near else None


def _is_near(word: str, other: str) -> bool:
    """At most two typing errors apart, one in a short word: an inserted, missing, wrong or transposed letter."""
    allowed = 1 if len(other) < 6 else 2
    if abs(len(word) - len(other)) > allowed:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word):
        fresh = [at + 1]
        for place, mark in enumerate(other):
            cost = min(row[place + 1] + 1, fresh[place] + 1, row[place] + (letter != mark))
            if at and place and letter == other[place - 1] and word[at - 1] == mark:
                cost = min(cost, before[place - 1] + 1)
            fresh.append(cost)
        before, row = row, fresh
    return row[-1] <= allowed


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _meant(environ):
        spec = _spec_of(name)
        if spec is not None:
            text = read_secret(spec.variable, environ) if spec.secret else environ[name]
            found[spec.key] = _checked(spec.key, text, f"variable {name}")
        elif name.startswith(_KEEP_VARIABLE):
            key = _KEEP + name.removeprefix(_KEEP_VARIABLE).lower()
            found[key] = _checked(key, environ[name], f"variable {name}")
        elif not name.startswith(PREFIX + "PACKS_") and (fault := _misspelt(name)) is not None:
            raise fault
    return found


def _packs_from_environment(environ: Mapping[str, str], enabled: tuple[str, ...]) -> dict[str, Any]:
    """`TOOLGATE_PACKS_<NAME>_<KEY>` of enabled packs. The longest name wins where one pack's name begins another's."""
    prefixes = {
        f"{PREFIX}PACKS_{pack.replace('-', '_').upper()}_": pack for pack in sorted(enabled, key=len, reverse=True)
    }
    found: dict[str, Any] = {}
    for name in _meant(environ):
        if not name.startswith(PREFIX + "PACKS_") or name in _BY_VARIABLE:
            continue
        prefix = next((each for each in prefixes if name.startswith(each) and name != each), None)
        if prefix is None:
            raise _unknown(name, "environment", [*prefixes, PREFIX + "PACKS_ENABLED"])
        found[f"packs.{prefixes[prefix]}.{name.removeprefix(prefix).lower()}"] = free_value(environ[name])
    return found


def free_value(text: str) -> Any:
    """How text of unknown kind is read: `8`, `true`, `["a"]` as TOML has it, anything else as it stands."""
    import tomllib  # noqa: PLC0415 (only when a pack is configured this way)

    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if set(document) == {"value"} else text


def _checked(key: str, value: object, place: str) -> Any:
    """A value of the setting's own kind and range; a pack's own setting as it is."""
    spec = _spec_for(key)
    if spec is None:
        if key.startswith("packs.") and key.count(".") >= 2:
            return value
        if key.startswith(_KEEP):
            names = _words(value)
            if names is None:
                raise SettingsError(f'{place}: {key} is not a list of texts.\nGive names of arguments: ["issue"].')
            return names
        raise _unknown(key, place, [*_BY_KEY, *TABLES])
    wanted = _KINDS[spec.kind] + (f" from {spec.low} to {spec.high}" if spec.low is not None else "")
    converted = _CONVERT[spec.kind](value)
    if converted is None or (spec.kind == "place" and not converted and spec.default):
        raise SettingsError(f"{place}: {key} is not {_KINDS[spec.kind]}.\nGive {wanted}.")
    if spec.low is not None and spec.high is not None and not spec.low <= converted <= spec.high:
        raise SettingsError(f"{place}: {key} is out of range.\nGive {wanted}.")
    if spec.choices and converted not in spec.choices:
        raise SettingsError(f"{place}: {key} has no such choice.\nGive {' or '.join(spec.choices)}.")
    if spec.form and converted and not re.fullmatch(spec.form, converted):
        raise SettingsError(f"{place}: {key} is not {spec.unit}.\nGive one like {spec.like}.")
    return converted


def _whole(value: object) -> int | None:
    # int() would also take "1_0", " 1" and digits of other scripts; TOML's booleans are integers to Python.
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
    return value if type(value) is int else None


def _number(value: object) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", value) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _switch(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value)
    return value if isinstance(value, bool) else None


def _words(value: object) -> tuple[str, ...] | None:
    """A list, or text that is one: `a, b`, or a TOML array when an entry holds a comma."""
    if isinstance(value, str):
        value = (
            free_value(value) if value.startswith("[") else [word.strip() for word in value.split(",") if word.strip()]
        )
    if isinstance(value, list | tuple) and all(isinstance(word, str) and word.isprintable() for word in value):
        return tuple(value)
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.isprintable() else None


def _place(value: object) -> str | None:
    return _text(os.fspath(value)) if isinstance(value, str | Path) else None


_CONVERT: Final[Mapping[Kind, Callable[[object], Any]]] = {
    "text": _text,
    "whole": _whole,
    "number": _number,
    "switch": _switch,
    "words": _words,
    "place": _place,
}
"""A value in the setting's own type, from TOML or from text; None when it is of another kind."""


def _unknown(name: str, place: str, valid: list[str]) -> SettingsError:
    fix = did_you_mean(name, valid) or "Remove it: `toolgate config print` lists every setting."
    return SettingsError(f"{place}: there is no setting {name}.\n{fix}")


def _flag(key: str) -> str:
    return _BY_KEY[key].flag if key in _BY_KEY else f"--set {key}"


def _assembled(home: Path, file: Path | None, given: Mapping[str, tuple[Source, Any]]) -> Settings:
    values: dict[str, Any] = {spec.key: given[spec.key][1] if spec.key in given else spec.default for spec in SPECS}
    sources: dict[str, Source] = {spec.key: given[spec.key][0] if spec.key in given else "default" for spec in SPECS}
    for spec in SPECS:
        if spec.kind == "place":
            values[spec.key] = home / Path(values[spec.key]).expanduser() if values[spec.key] else None
    # A policy that someone named must be there (its loader refuses); only an unnamed one gives way to the packaged.
    if sources["paths.policy"] == "default" and not values["paths.policy"].is_dir():
        values["paths.policy"] = None
    tables: dict[str, dict[str, Any]] = {}
    keep: dict[str, tuple[str, ...]] = {}
    urls: dict[str, str] = {}
    for key, (source, value) in given.items():
        if key == _UPSTREAMS:
            continue
        if key.startswith(STORES):
            if value:
                urls[key.removeprefix(STORES)] = value
                sources[key] = source
        elif key.startswith(_KEEP):
            keep[key.removeprefix(_KEEP)] = value
            sources[key] = source
        elif key not in _BY_KEY:
            _, pack, name = key.split(".", 2)
            tables.setdefault(pack, {})[name] = value
            sources[key] = source
    groups: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for key, value in values.items():
        table, dot, name = key.partition(".")
        if dot:
            groups[table][name] = value
    plain = {table: kind(**groups[table]) for table, kind in TABLES.items() if table not in _MADE_APART}
    return Settings(
        home=home,
        file=file,
        **plain,
        packs=PackSettings(**groups["packs"], tables=tables),
        stores=StoreSettings(urls),
        ledger=LedgerSettings(**groups["ledger"], keep=keep),
        **{key: value for key, value in values.items() if "." not in key},
        sources=sources,
        upstreams=given[_UPSTREAMS][1] if _UPSTREAMS in given else {},
    )


def _check_together(settings: Settings) -> None:
    """Checks that involve more than one value."""
    _check_packs(settings.packs)
    limits = settings.limits
    if limits.concurrency_per_caller >= limits.concurrency_total:
        raise SettingsError(
            f"limits.concurrency_per_caller ({limits.concurrency_per_caller}) lets one key hold all calls that "
            f"limits.concurrency_total ({limits.concurrency_total}) allows.\nGive the total at least one more."
        )
    if limits.url and not _LIMITS_URL.match(limits.url):
        # The value is not repeated: it may hold a password.
        raise SettingsError(
            "limits.url is not the address of a Redis or Valkey server.\n"
            "Give redis://HOST:PORT/0 or rediss://..., or leave it out."
        )
    server = settings.server
    if not _is_loopback(server.host) and not server.allowed_hosts:
        raise SettingsError(
            f"server.host {server.host} listens beyond this machine, and server.allowed_hosts is empty.\n"
            "Name the Host headers that clients will send, or listen on 127.0.0.1."
        )
    _check_proxies(server.trusted_proxies)
    _check_proxy(settings.egress)
    _check_stores(settings)
    workspace = settings.paths.workspace.resolve()
    for name in ("runs", "policy", "keys", "secrets", "state"):
        place = getattr(settings.paths, name)
        if place is not None and place.resolve().is_relative_to(workspace):
            raise SettingsError(
                f"paths.{name} lies inside paths.workspace, where tools can read it.\nMove one of them."
            )
    if server.tls_key is not None and server.tls_key.resolve().is_relative_to(workspace):
        raise SettingsError("server.tls_key lies inside paths.workspace, where tools can read it.\nMove one of them.")


def _check_stores(settings: Settings) -> None:
    named = {f"{STORES}{name}": url for name, url in settings.stores.urls.items()}
    for key, url in {**named, "idempotency.url": settings.idempotency.url}.items():
        if not _DATABASE_URL.match(url):  # its value is not repeated: it may hold a password
            raise SettingsError(
                f"{key} is not a database URL.\nGive postgresql://... or sqlite:///..., or leave it out; "
                f"DynamoDB tables are named by {' and '.join(_TABLES)}."
            )
    for key in _TABLES:
        if settings.value(key) and not _TABLE_NAME.fullmatch(settings.value(key)):
            raise SettingsError(f"{key} is no name of a DynamoDB table.\nGive 3 to 255 letters, digits, _ . or -.")
    if settings.awsRegion and not _REGION.fullmatch(settings.awsRegion):
        raise SettingsError("awsRegion is no region.\nGive one like us-east-1.")


def _check_proxy(egress: EgressSettings) -> None:
    if egress.proxy and not _PROXY_URL.fullmatch(egress.proxy):
        # The value is not repeated: somebody may have put a password into it.
        raise SettingsError(
            "egress.proxy is not the address of an HTTP proxy.\n"
            "Give http://HOST:PORT; its user and password come from egress.proxy_credentials."
        )
    if egress.proxy_credentials and not _REFERENCE.fullmatch(egress.proxy_credentials):
        raise SettingsError(
            "egress.proxy_credentials does not say where they are kept.\n"
            "Give env:NAME, or file:NAME for a file in paths.secrets."
        )


def _check_proxies(trusted: tuple[str, ...]) -> None:
    if not trusted:
        return
    from ipaddress import ip_network  # noqa: PLC0415 (as below)

    for text in trusted:
        try:
            network = ip_network(text)
        except ValueError:
            raise SettingsError(
                f"server.trusted_proxies: {text!r} is neither an address nor a network.\nGive 10.0.0.5 or 10.0.0.0/24."
            ) from None
        if not network.prefixlen:
            raise SettingsError(
                f"server.trusted_proxies: {text} trusts everyone, and then anyone writes any address into the log.\n"
                "Name the proxies."
            )


def _check_unchosen(settings: Settings) -> None:
    """A directory that nobody chose may bring settings, but runs no program, opens no other place and names no secret."""
    reaching = [spec.key for spec in SPECS if _reaches_out(settings, spec)]
    reaching += [key for key, source in settings.sources.items() if source == "file" and _names_secret(settings, key)]
    reaching += [key for key, source in settings.sources.items() if source == "file" and key.startswith(STORES)]
    reaching += [f"upstreams.{name}" for name in settings.upstreams]  # each starts a program, or calls somebody
    if reaching:
        raise SettingsError(
            f"{reaching[0]} reaches beyond {settings.home}, which is the home only because the command was started there.\n"
            f"If you trust its {FILE_NAME}, name it: --home {settings.home} (or TOOLGATE_HOME)."
        )


def _reaches_out(settings: Settings, spec: Spec) -> bool:
    value, source = settings.value(spec.key), settings.sources[spec.key]
    if not value or source in ("flag", "environment"):
        return False
    if spec.kind == "place":
        return not value.resolve().is_relative_to(settings.home.resolve())  # also the default one may be a link
    return source == "file" and spec.key in _REACHING


def _names_secret(settings: Settings, key: str) -> bool:
    """A pack's setting like `env:NAME`: the service that reads it may send it to a peer that the same file names."""
    if key in _BY_KEY or key.startswith((_KEEP, STORES)):
        return False
    _, pack, name = key.split(".", 2)
    return _holds_secret(settings.packs.tables[pack][name])


def _holds_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_secret(each) for each in value.values())
    if isinstance(value, list):
        return any(_holds_secret(each) for each in value)
    return isinstance(value, str) and value.startswith("env:")


def _check_packs(packs: PackSettings) -> None:
    for pack in packs.enabled:
        if not _PACK_NAME.fullmatch(pack):
            raise SettingsError(f"packs.enabled: {pack!r} is not a pack name.\nGive names like my-pack.")
        if packs.enabled.count(pack) > 1:
            raise SettingsError(f"packs.enabled: {pack} stands there twice.\nName it once.")
    for pack in packs.tables:
        if pack not in packs.enabled:
            names = [f"packs.{each}" for each in packs.enabled]
            raise _unknown(f"packs.{pack}", f"the pack {pack} is not in packs.enabled", names)


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address  # noqa: PLC0415 (a third of this module's import time)

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
