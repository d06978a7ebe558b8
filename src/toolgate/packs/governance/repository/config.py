"""A repository's own settings: `.toolgate.toml`, reviewed and versioned with what they are about.

repository = "acme/shop"          # its name in the stores; else its remote
profile = "default"               # relaxed, default or strict
default_permissions = "read"      # of a workflow token that states none; else unknown
merge_queue = true                # changes go through one; else what the rules file says
zizmor = "auto"                   # auto: if it is installed; on: its absence is an error; off

[[write]]                         # who may write what
workflow = "release.yml"
job = "publish"
scopes = ["contents"]
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, ValidationError, convert, field

from toolgate.kit.yamldoc import YamlFault
from toolgate.model.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolgate.kit.findings import Severity

CONFIG: Final = ".toolgate.toml"
MAX_WRITERS: Final = 500
REPOSITORY_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}(?:/[A-Za-z0-9_.-]{1,100}){1,4}")
_UNKNOWN_KEY: Final = re.compile(r"Object contains unknown field `([^`]{1,80})`")

Profile = Literal["relaxed", "default", "strict"]
PROFILES: Final[tuple[Profile, ...]] = ("relaxed", "default", "strict")
"""Mildest first."""
LIMITS: Final[Mapping[Profile, Mapping[Severity, int]]] = {
    "relaxed": {"critical": 0, "high": 5, "medium": 50},
    "default": {"critical": 0, "high": 3, "medium": 10},
    "strict": {"critical": 0, "high": 0, "medium": 5},
}
"""How many findings of a severity may stand; one more blocks (ADR-0008)."""


class Writer(Struct, frozen=True, forbid_unknown_fields=True):
    """Scopes that one workflow, or one job of it, may write."""

    workflow: str
    scopes: tuple[str, ...]
    job: str | None = None
    reason: str = ""

    def allows(self, path: str, job: str, scope: str) -> bool:
        here = path == self.workflow or path.rpartition("/")[2] == self.workflow
        return here and self.job in (None, job) and scope in self.scopes


class Config(Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    repository: str | None = None
    profile: Profile = "default"
    default_permissions: Literal["read", "write"] | None = None
    merge_queue: bool | None = None
    zizmor: Literal["auto", "on", "off"] = "auto"
    write: tuple[Writer, ...] = field(default_factory=tuple)


def read_config(data: bytes) -> Config:
    """Raises: YamlFault: not TOML, an unknown key, a value of another kind; with the line where that is known."""
    table = read_toml(data)
    try:
        config = convert(table, _Keys)
    except ValidationError as fault:
        raise YamlFault(_line_of(data, str(fault)), _told(str(fault))) from None
    if config.repository is not None and not REPOSITORY_NAME.fullmatch(config.repository):
        raise YamlFault(_line_of(data, "`repository`"), "`repository` must be a name such as owner/name")
    if len(config.write) > MAX_WRITERS:
        raise YamlFault(1, f"more than {MAX_WRITERS} entries of `write`")
    return Config(**{name: getattr(config, name) for name in config.__struct_fields__})


class _Keys(Config, frozen=True, forbid_unknown_fields=True, tag=False):
    """The same without the tag: what people write."""


def read_toml(data: bytes) -> dict[str, Any]:
    """Raises: YamlFault."""
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise YamlFault(1, "not UTF-8") from None
    except tomllib.TOMLDecodeError as fault:
        at = re.search(r"line ([0-9]+)", str(fault))
        raise YamlFault(int(at[1]) if at else 1, f"not TOML: {fault}") from None
    except RecursionError:
        raise YamlFault(1, "nested too deep") from None


def _told(fault: str) -> str:
    """A misspelt key in our words, with the nearest one; any other fault as it is."""
    unknown = _UNKNOWN_KEY.match(fault)
    if unknown is None:
        return fault
    known = {*Config.__struct_fields__, *Writer.__struct_fields__}
    return f"there is no key {unknown[1]!r}. {did_you_mean(unknown[1], known)}".rstrip(" .")


def _line_of(data: bytes, message: str) -> int:
    """TOML values do not know their lines: the first line that begins with the key in the message."""
    named = re.search(r"`\$?\.?([A-Za-z_]+)", message)
    lines = data.decode(errors="replace").splitlines()
    key = named[1] if named else ""
    return next((number for number, line in enumerate(lines, 1) if key and line.lstrip(" [").startswith(key)), 1)


def stricter(one: Profile, other: Profile) -> Profile:
    return max(one, other, key=PROFILES.index)
