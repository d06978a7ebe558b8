"""Where settings come from: the first of flag, `TOOLGATE_*` variable, `toolgate.toml`, default.

An unknown name, a value of the wrong kind or out of range refuses to start: a misspelt limit that is silently ignored
is no limit. Which settings there are is `toolgate.settings`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import SettingsError
from toolgate.settings import (
    DEFAULT_PACKS,
    PREFIX,
    SPECS,
    TABLES,
    Kind,
    LedgerSettings,
    Limits,
    Packs,
    Paths,
    Server,
    Settings,
    Source,
    Stores,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Settings", "free_value", "load_settings", "read_secret"]

FILE_NAME: Final = "toolgate.toml"
MAX_FILE_BYTES: Final = 1024 * 1024
"""A settings file or a `*_FILE` secret larger than this is not one."""

OTHER_VARIABLES: Final[Mapping[str, str]] = {
    "TOOLGATE_HOME": "the home directory, like --home",
    "TOOLGATE_API_KEY": "the caller's key for `toolgate stdio` and `toolgate call`",
    "TOOLGATE_API_KEY_FILE": "a file that holds that key",
    "TOOLGATE_URL": "the server that `toolgate call` talks to, like --url",
    "TOOLGATE_TRACEBACK": "1 shows where Toolgate itself failed",
    "TOOLGATE_REQUIRE": "the test suite: things that must not be skipped",
    "TOOLGATE_VECTORS": "the test suite: a folder of published test vectors",
}
"""Variables that are no settings, and what they are for."""
_ORCHESTRATOR: Final = re.compile(r"TOOLGATE_(SERVICE_(HOST|PORT(_.*)?)|PORT(_.*)?)")
"""Kubernetes sets these in every container when a service is called `toolgate`; they are not meant for us."""

_DATABASE_URL: Final = re.compile(r"(postgresql|sqlite)(\+[a-z0-9]+)?://|$")
_PACK_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")

_KINDS: Final[Mapping[Kind, str]] = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "words": "a list of texts",
    "place": "a path",
}
_BY_KEY: Final = {spec.key: spec for spec in SPECS}
_BY_VARIABLE: Final = {spec.variable: spec for spec in SPECS}


def load_settings(home: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]) -> Settings:
    """Read, merge and check every source.

    `flags` maps keys (`server.port`, `packs.lra.registry`) to values; None means not given.
    Raises: SettingsError: names the key, where it stands, and the fix.
    """
    place = (home or Path(environ.get(PREFIX + "HOME") or ".")).expanduser().absolute()
    if not place.is_dir():
        raise SettingsError(f"The home directory {place} does not exist.\nMake one: toolgate init {place}")
    # lexists: a dangling link is a fault to report, not a reason for defaults.
    file = place / FILE_NAME if os.path.lexists(place / FILE_NAME) else None
    given: dict[str, tuple[Source, Any]] = {}
    # Weakest first; each stronger source overwrites.
    given |= {key: ("file", value) for key, value in (_from_file(file) if file else {}).items()}
    given |= {key: ("environment", value) for key, value in _from_environment(environ).items()}
    by_flag: dict[str, tuple[Source, Any]] = {
        key: ("flag", _checked(key, value, f"flag {_flag(key)}")) for key, value in flags.items() if value is not None
    }
    _, enabled = (given | by_flag).get("packs.enabled", ("default", DEFAULT_PACKS))
    given |= {key: ("environment", value) for key, value in _packs_from_environment(environ, enabled).items()}
    settings = _assembled(place, file, given | by_flag)
    _check_together(settings)
    return settings


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
        if name not in TABLES:
            found[name] = _checked(name, value, FILE_NAME)
        elif not isinstance(value, dict):
            raise SettingsError(f"{FILE_NAME}: {name} is a table, not a value.\nWrite [{name}] on a line of its own.")
        else:
            found |= _from_table(name, value)
    return found


def _from_table(table: str, content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in content.items():
        if table == "packs" and isinstance(value, dict):
            found |= {f"packs.{name}.{key}": item for key, item in value.items()}
        else:
            found[f"{table}.{name}"] = _checked(f"{table}.{name}", value, f"{FILE_NAME}, [{table}]")
    return found


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or _ORCHESTRATOR.fullmatch(name):
            continue
        spec = _BY_VARIABLE.get(name) or _BY_VARIABLE.get(name.removesuffix("_FILE"))
        if spec is not None and (spec.variable == name or spec.secret):
            text = read_secret(spec.variable, environ) if spec.secret else environ[name]
            found[spec.key] = _checked(spec.key, text, f"variable {name}")
        elif not name.startswith(PREFIX + "PACKS_"):
            raise _unknown(name, "environment", [*_BY_VARIABLE, *OTHER_VARIABLES])
    return found


def _packs_from_environment(environ: Mapping[str, str], enabled: tuple[str, ...]) -> dict[str, Any]:
    """`TOOLGATE_PACKS_<NAME>_<KEY>` of enabled packs. The longest name wins where one pack's name begins another's."""
    prefixes = {
        f"{PREFIX}PACKS_{pack.replace('-', '_').upper()}_": pack for pack in sorted(enabled, key=len, reverse=True)
    }
    found: dict[str, Any] = {}
    for name in sorted(environ):
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
    spec = _BY_KEY.get(key)
    if spec is None:
        if key.startswith("packs.") and key.count(".") >= 2:
            return value
        raise _unknown(key, place, [*_BY_KEY, *TABLES])
    wanted = _KINDS[spec.kind] + (f" from {spec.low} to {spec.high}" if spec.low is not None else "")
    converted = _CONVERT[spec.kind](value)
    if converted is None or (spec.kind == "place" and not converted and spec.default):
        raise SettingsError(f"{place}: {key} is not {_KINDS[spec.kind]}.\nGive {wanted}.")
    if spec.low is not None and spec.high is not None and not spec.low <= converted <= spec.high:
        raise SettingsError(f"{place}: {key} is out of range.\nGive {wanted}.")
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
    from difflib import get_close_matches  # noqa: PLC0415 (only to explain a mistake)

    near = get_close_matches(name, valid, n=1, cutoff=0.5)
    fix = f"Did you mean {near[0]}?" if near else "Remove it: `toolgate config print` lists every setting."
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
    for key, (source, value) in given.items():
        if key not in _BY_KEY:
            _, pack, name = key.split(".", 2)
            tables.setdefault(pack, {})[name] = value
            sources[key] = source
    groups: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for key, value in values.items():
        table, dot, name = key.partition(".")
        if dot:
            groups[table][name] = value
    return Settings(
        home=home,
        file=file,
        server=Server(**groups["server"]),
        limits=Limits(**groups["limits"]),
        paths=Paths(**groups["paths"]),
        packs=Packs(**groups["packs"], tables=tables),
        stores=Stores(**groups["stores"]),
        ledger=LedgerSettings(**groups["ledger"]),
        deterministic_ids=values["deterministic_ids"],
        sources=sources,
    )


def _check_together(settings: Settings) -> None:
    """What no single value can be blamed for."""
    _check_packs(settings.packs)
    server = settings.server
    if not _is_loopback(server.host) and not server.allowed_hosts:
        raise SettingsError(
            f"server.host {server.host} listens beyond this machine, and server.allowed_hosts is empty.\n"
            "Name the Host headers that clients will send, or listen on 127.0.0.1."
        )
    for name in ("false_positives", "consent", "consensus"):
        # The value is not repeated: it may hold a password.
        if not _DATABASE_URL.match(getattr(settings.stores, name)):
            raise SettingsError(
                f"stores.{name} is not a database URL.\nGive postgresql://... or sqlite:///..., or leave it out."
            )
    workspace = settings.paths.workspace.resolve()
    for name in ("runs", "policy", "keys", "secrets", "state"):
        place = getattr(settings.paths, name)
        if place is not None and place.resolve().is_relative_to(workspace):
            raise SettingsError(
                f"paths.{name} lies inside paths.workspace, where tools can read it.\nMove one of them."
            )


def _check_packs(packs: Packs) -> None:
    for pack in packs.enabled:
        if not _PACK_NAME.fullmatch(pack):
            raise SettingsError(f"packs.enabled: {pack!r} is no pack name.\nGive names like lra or my-pack.")
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
