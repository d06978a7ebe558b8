"""The table `[upstreams.NAME]` of toolgate.toml: where an upstream is and what it is given.

Secrets are references (`file:NAME` in the secrets directory, `env:NAME`): a value that looks like a secret and stands in the file
itself is refused, because settings are read by more people and programs than secrets are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from toolgate.errors import SettingsError, ToolError
from toolgate.kit.secretlike import is_reference, looks_secret
from toolgate.powers.addresses import parse_target

NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,32}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
MAX_ARGUMENTS: Final = 256
MAX_TEXT: Final = 4096
RESERVED_HEADERS: Final = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "upgrade",
        "accept",
        "accept-encoding",
    }
    | {"mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "cookie"}
)
"""Written by the client itself, or never sent."""


class OAuthTable(Struct, frozen=True):
    """How to log in to an upstream. What is empty is found out."""

    login: str
    """The file of the secrets directory that holds the login."""
    client_id: str = ""
    client_secret: str = ""
    """A reference."""
    scope: str = ""
    issuer: str = ""


class UpstreamTable(Struct, frozen=True):
    """One upstream's settings, checked. Exactly one of `url` and `command` is there."""

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    deadline_s: float = 60.0
    concurrency: int = 16
    prefix: str = ""
    identity: str = "service"
    sandbox: str = "none"
    oauth: OAuthTable | None = None

    def secrets(self) -> list[str]:
        """Every reference in it."""
        words = [value.rpartition(" ")[2] for value in (*self.headers.values(), *self.env.values())]
        words += [self.oauth.client_secret] if self.oauth is not None else []
        return list(dict.fromkeys(filter(is_reference, words)))

    def resolved(self, read: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
        """(headers, environment) with each reference replaced by what it names. Raises: what `read` raises."""
        return (
            {name: _resolved(value, read) for name, value in self.headers.items()},
            {name: _resolved(value, read) for name, value in self.env.items()},
        )


def _resolved(value: str, read: Callable[[str], str]) -> str:
    """`file:NAME`, or text with such a reference at its end (`Bearer file:NAME`)."""
    before, blank, last = value.rpartition(" ")
    return f"{before}{blank}{read(last)}" if is_reference(last) else value


def read_table(name: str, given: Any) -> UpstreamTable:
    """Raises: SettingsError: names the key and the fix."""
    place = f"upstreams.{name}"
    if not NAME.fullmatch(name):
        raise SettingsError(
            f"{place[:80]!a} cannot be the name of an upstream.\nUse small letters, digits and hyphens, at most 32."
        )
    if not isinstance(given, Mapping):
        raise SettingsError(f"{place} is a table, not a value.\nWrite [upstreams.{name}] on a line of its own.")
    unknown = sorted(given.keys() - _READ.keys())
    if unknown:
        raise SettingsError(f"{place}.{unknown[0]} is not a setting of an upstream.\nThere are {', '.join(_READ)}.")
    values = {key: _READ[key](f"{place}.{key}", value) for key, value in given.items()}
    if ("url" in values) == ("command" in values):
        raise SettingsError(
            f'{place} needs either url or command.\nWrite url = "https://..." or command = ["program"].'
        )
    _check_together(place, values)
    if "oauth" in values:
        values["oauth"] = OAuthTable(**{"login": f"upstream-{name}-login", **values["oauth"]})
    return UpstreamTable(name=name, **{"prefix": f"{name}_", **values})


_APART: Final = (("headers", "command"), ("oauth", "command"), ("env", "url"), ("directory", "url"), ("sandbox", "url"))


def _check_together(place: str, values: Mapping[str, Any]) -> None:
    for key, other in _APART:
        if key in values and other in values:
            raise SettingsError(f"{place}.{key} is not for an upstream with a {other}.\nRemove one of them.")
    if "oauth" in values and any(name.lower() == "authorization" for name in values.get("headers", ())):
        raise SettingsError(f"{place} has both oauth and an Authorization header.\nKeep one of them.")


def _url(place: str, value: Any) -> str:
    try:
        parse_target(_text(place, value))
    except ToolError as fault:
        raise SettingsError(f"{place}: {fault.text}.\nGive the address that clients connect to.") from None
    if "?" in value and any(looks_secret(part.partition("=")[2]) for part in value.partition("?")[2].split("&")):
        raise SettingsError(f"{place} seems to carry a secret in its query.\nSend it as a header, by reference.")
    return str(value)


def _command(place: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and 0 < len(value) <= MAX_ARGUMENTS and all(isinstance(word, str) for word in value):
        for word in value:
            _text(place, word)
            if looks_secret(word.rpartition("=")[2]):
                raise SettingsError(
                    f"{place} seems to carry a secret, which every user of this machine could read.\n"
                    "Give it in env, by reference."
                )
        if value[0]:
            return tuple(value)
    raise SettingsError(f'{place} is not a program with its arguments.\nWrite a list: ["npx", "-y", "server@1.0.0"].')


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_TEXT:
        raise SettingsError(f"{place} is not printable text of at most {MAX_TEXT} characters.\nCorrect it.")
    return value


def _texts(form: re.Pattern[str], reserved: frozenset[str]) -> Callable[[str, Any], dict[str, str]]:
    def read(place: str, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise SettingsError(f'{place} is not a table of texts.\nWrite {{ NAME = "file:secret" }}.')
        for name, text in value.items():
            if not form.fullmatch(name) or name.lower() in reserved:
                raise SettingsError(f"{place}: {name[:80]!a} cannot be set.\nRemove it.")
            if _text(f"{place}.{name}", text) and looks_secret(text):
                raise SettingsError(
                    f"{place}.{name} holds what looks like a secret.\n"
                    "Write the secret into the secrets directory (chmod 600) and name it here: file:NAME."
                )
        return dict(value)

    return read


def _number(low: float, high: float) -> Callable[[str, Any], float]:
    def read(place: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise SettingsError(f"{place} is not a number from {low:g} to {high:g}.\nCorrect it.")
        return value

    return read


def _whole(low: int, high: int) -> Callable[[str, Any], int]:
    def read(place: str, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise SettingsError(f"{place} is not a whole number from {low} to {high}.\nCorrect it.")
        return value

    return read


def _prefix(place: str, value: Any) -> str:
    if not isinstance(value, str) or not PREFIX.fullmatch(value):
        raise SettingsError(f"{place} is not made of letters, digits, _ and -, at most 32.\nCorrect it.")
    return value


def _directory(place: str, value: Any) -> str:
    if not _text(place, value).startswith("/"):
        raise SettingsError(f"{place} is not an absolute path.\nWrite the whole path.")
    return str(value)


def _oauth(place: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or value.keys() - _OAUTH.keys():
        raise SettingsError(f"{place} is a table of {', '.join(_OAUTH)}.\nCorrect it; oauth = {{}} is enough.")
    read = {key: _text(f"{place}.{key}", text) for key, text in value.items()}
    for key, text in read.items():
        if not _OAUTH[key].fullmatch(text):
            raise SettingsError(f"{place}.{key} cannot be used.\nCorrect it, or leave it out.")
    if "issuer" in read:
        _url(f"{place}.issuer", read["issuer"])
    if "login" in read:
        read["login"] = read["login"].removeprefix("file:")
    return read


_OAUTH: Final[Mapping[str, re.Pattern[str]]] = {
    "login": re.compile(r"file:[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"),
    "client_id": re.compile(r"[\x21-\x7e]{1,2048}"),
    "client_secret": re.compile(r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"),
    "scope": re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*"),
    "issuer": re.compile(r"https?://[\x21-\x7e]+"),
}


def _one_of(*words: str) -> Callable[[str, Any], str]:
    def read(place: str, value: Any) -> str:
        if value not in words:
            raise SettingsError(f"{place} is one of {', '.join(words)}.\nCorrect it.")
        return str(value)

    return read


_READ: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "url": _url,
    "command": _command,
    "headers": _texts(_HEADER, RESERVED_HEADERS),
    "oauth": _oauth,
    "env": _texts(_VARIABLE, frozenset()),
    "directory": _directory,
    "deadline_s": _number(0.1, 600),
    "concurrency": _whole(1, 1000),
    "prefix": _prefix,
    "identity": _one_of("service"),
    "sandbox": _one_of("none", "bubblewrap"),
}
