"""What the commands change in a home: toolgate.toml, secrets, pins, rows of the manifest. Each file whole or not at all."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.atomic_file import replace_file
from toolgate.config import FILE_NAME
from toolgate.errors import SettingsError, StartRefused
from toolgate.model import strictjson
from toolgate.packs.upstream.tools import pack_name
from toolgate.policy.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, parse_manifest, read_json
from toolgate.upstreams import pin_path

if TYPE_CHECKING:
    from toolgate.kit.pins import Pin
    from toolgate.settings import Settings

_HEADING: Final = re.compile(r"^\s*\[")
_PUBLIC, _PRIVATE = 0o644, 0o600
HINT: Final = "A tool of another server: treat its answers as a stranger's."


def policy_of(settings: Settings) -> Path:
    """Raises: StartRefused."""
    if settings.paths.policy is None:
        raise StartRefused(
            f"{settings.home} has no policy of its own, in which an adopted tool could be written down.\n"
            "Make one: toolgate init in a new directory, and copy its policy here."
        )
    return settings.paths.policy


# -- toolgate.toml ----------------------------------------------------------------------------------------------


def add_table(settings: Settings, name: str, table: Mapping[str, Any]) -> None:
    """Raises: SettingsError."""
    file = settings.home / FILE_NAME
    before = file.read_text("utf-8") if file.exists() else ""
    if name in settings.upstreams:
        raise SettingsError(f"There is an upstream {name} already.\nRemove it first, or choose another name.")
    _write_toml(
        file, f"{before.rstrip()}\n\n{written(name, table)}".lstrip(), {**settings.upstreams, name: dict(table)}
    )


def remove_table(settings: Settings, name: str) -> None:
    """Raises: SettingsError: the table is written in a way that only a person can take apart."""
    file = settings.home / FILE_NAME
    kept: list[str] = []
    inside = False
    heading = re.compile(rf"^\s*\[upstreams\.(?:{re.escape(name)}|\"{re.escape(name)}\")(?:\.[^\]]*)?\]\s*(?:#.*)?$")
    for line in file.read_text("utf-8").splitlines():
        if _HEADING.match(line):
            inside = heading.match(line) is not None
        if not inside:
            kept.append(line)
    rest = {key: value for key, value in settings.upstreams.items() if key != name}
    _write_toml(file, "\n".join(kept).rstrip() + "\n", rest)


def add_oauth(settings: Settings, name: str) -> None:
    """Let an upstream's table say `oauth = {}`. Raises: SettingsError."""
    file = settings.home / FILE_NAME
    heading = re.compile(rf"^\s*\[upstreams\.(?:{re.escape(name)}|\"{re.escape(name)}\")\]\s*(?:#.*)?$")
    lines = file.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if heading.match(line):
            lines.insert(number + 1, "oauth = {}")
            break
    after = {**settings.upstreams, name: {**settings.upstreams[name], "oauth": {}}}
    _write_toml(file, "\n".join(lines) + "\n", after)


def _write_toml(file: Path, text: str, upstreams: Mapping[str, Any]) -> None:
    """Only if the file then says exactly this, and all else as before. Raises: SettingsError."""
    before = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        after = {}
    if after.get("upstreams", {}) != upstreams or _others(after) != _others(before):
        raise SettingsError(
            f"{FILE_NAME} is written in a way that this command cannot change safely.\nEdit it by hand."
        )
    replace_file(file, text.encode(), file.stat().st_mode & 0o777 if file.exists() else _PRIVATE)


def _others(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "upstreams"}


def written(name: str, table: Mapping[str, Any]) -> str:
    """A table as TOML. Texts of JSON are texts of TOML, too."""
    lines = [f"[upstreams.{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + " }"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


# -- secrets, pins, rows ----------------------------------------------------------------------------------------


def write_secret(settings: Settings, name: str, value: str) -> None:
    """Raises: StartRefused: another secret of that name is there."""
    directory = settings.paths.secrets
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / name
    if path.exists() and path.read_text("utf-8").strip() != value:
        raise StartRefused(f"{path} holds another secret.\nMove it away, or rename the server in its file.")
    replace_file(path, value.encode(), _PRIVATE)


def write_pin(policy: Path, pin: Pin) -> None:
    path = pin_path(policy, pin.upstream)
    path.parent.mkdir(exist_ok=True)
    replace_file(path, pin.as_bytes(), _PUBLIC)


def rows_for(policy: Path, upstream: str, names: Collection[str], given: Mapping[str, Sequence[str]]) -> bytes:
    """The manifest in which this upstream has rows for no other names, and those given have these roles; a row that is there
    keeps what a person wrote into it. Nothing is written yet.

    Raises: StartRefused.
    """
    rows = _rows(policy)
    rows["tools"] = [row for row in rows["tools"] if row.get("x-pack") != pack_name(upstream) or row["name"] in names]
    there = {row["name"]: row for row in rows["tools"]}
    for name, roles in sorted(given.items()):
        if name in there and there[name].get("x-pack") != pack_name(upstream):
            raise StartRefused(
                f"The policy has a row for {name} that is not of {upstream}.\nGive the upstream another prefix."
            )
        if name in there:
            there[name]["x-roles"] = list(roles)
        else:
            rows["tools"].append(_row(upstream, name, roles))
    return _encoded(policy, rows)


def write_rows(policy: Path, rows: bytes) -> None:
    path = policy / MANIFEST_FILE
    replace_file(path, rows, path.stat().st_mode & 0o777)


def keep_rows(policy: Path, upstream: str, names: Collection[str]) -> None:
    """Take away this upstream's rows for all other names. Raises: StartRefused."""
    write_rows(policy, rows_for(policy, upstream, names, {}))


def roles_of(policy: Path, upstream: str) -> dict[str, list[str]]:
    """Served name -> roles, as the manifest has them. Raises: StartRefused."""
    return {row["name"]: row["x-roles"] for row in _rows(policy)["tools"] if row.get("x-pack") == pack_name(upstream)}


def _row(upstream: str, name: str, roles: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "x-pack": pack_name(upstream),
        "x-tier": "experimental",
        "x-visibilityHint": HINT,
        "x-roles": list(roles),
    }


def _rows(policy: Path) -> dict[str, Any]:
    content: dict[str, Any] = read_json(policy / MANIFEST_FILE, max_bytes=MAX_MANIFEST_BYTES)
    parse_manifest(content, MANIFEST_FILE)
    return content


def _encoded(policy: Path, content: dict[str, Any]) -> bytes:
    parse_manifest(content, MANIFEST_FILE)  # what is written is a manifest, or nothing is
    encoded = strictjson.dumps_pretty(content)
    if len(encoded) > MAX_MANIFEST_BYTES:
        path = policy / MANIFEST_FILE
        raise StartRefused(f"{path} would be larger than a server reads.\nAdopt fewer tools: --tool GLOB chooses.")
    return encoded
