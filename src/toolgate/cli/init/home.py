"""Makes a home: settings, policy, workspace and a first key."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.config.settings import toml_value
from toolgate.config import FILE_NAME, load_settings
from toolgate.enabled import enabled_packs
from toolgate.errors import StartRefused
from toolgate.gate.keys import KeyRing
from toolgate.packs.discovery import store_settings
from toolgate.policy.manifest import FILES, default_file
from toolgate.powers.keys import KeyDirectory
from toolgate.settings import DEFAULT_PACKS, SPECS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.settings import Settings
    from toolgate.settings.spec import Spec

IGNORED: Final = "keys/\nsecrets/\nstate/\nruns/\n"
"""Private or produced: none of it belongs into version control."""


def init(*, directory: Path, json: bool) -> None:
    home = directory.absolute()
    _refuse_if_taken(home)
    with _all_or_nothing(home):
        settings = furnish(home, policy=True)
        with recorded(settings, "keys.create", {"role": "admin", "label": "first", "expires": None}) as found:
            key, text = KeyRing(settings.paths.keys).create("admin", label="first")
            found["id"] = key.id
    if json:
        output.answer_json({"home": str(home), "id": key.id, "role": key.role, "key": text})
        return
    where = "" if home == Path.cwd() else f" --home {directory}"
    output.say(f"Made a home in {home}", style="bold green")
    output.say(f"\nAdmin key, shown only now:\n\n  {text}\n")
    output.say("Next:", style="bold")
    output.say(
        f"  toolgate serve{where}\n  toolgate keys create --role builder{where}\n  toolgate mcp-config claude-code{where}"
    )


def furnish(home: Path, *, policy: bool) -> Settings:
    """Make the directories and toolgate.toml of a home; `policy` also copies the packaged policy, to be narrowed.

    The settings file comes last: a home that has one is complete. Side effects: writes below `home`.
    """
    with _nobody_else_writes():
        return _furnish(home, policy=policy)


def _furnish(home: Path, *, policy: bool) -> Settings:
    home.mkdir(parents=True, exist_ok=True)
    settings = load_settings(home, {}, {})
    for private in (settings.paths.keys.parent, settings.paths.secrets, settings.paths.state):
        private.mkdir(mode=0o700, exist_ok=True)
    settings.paths.workspace.mkdir(exist_ok=True)
    _make_signing_keys(settings)
    if policy:
        _copy_policy(home / "policy")
        write_new(home / ".gitignore", IGNORED)
    write_new(home / FILE_NAME, settings_file(policy=policy))
    return load_settings(home, {}, {})


def _make_signing_keys(settings: Settings) -> None:
    keys = KeyDirectory(settings.paths.secrets, workspace=settings.paths.workspace)
    enabled = enabled_packs(settings)
    for pack in enabled.packs:
        for name, use in pack.keys(enabled.tables[pack.name]).items():
            if not (settings.paths.secrets / name).exists():
                keys.generate(name, use=use)


@contextmanager
def _all_or_nothing(home: Path) -> Iterator[None]:
    """What a failed attempt made below `home` is taken away again."""
    there = home.exists()
    before = set(home.iterdir()) if there else set()

    def take_away() -> None:
        for new in set(home.iterdir()) - before if home.exists() else ():
            shutil.rmtree(new) if new.is_dir() else new.unlink()
        if not there and home.exists():
            home.rmdir()

    with ExitStack() as undo:
        undo.callback(take_away)
        yield
        undo.pop_all()


@contextmanager
def _nobody_else_writes() -> Iterator[None]:
    """Whatever the umask is: a server does not start from a home that others can write."""
    old = os.umask(0o022)
    os.umask(old | 0o022)
    try:
        yield
    finally:
        os.umask(old)


def _refuse_if_taken(home: Path) -> None:
    if home.exists() and not home.is_dir():
        raise StartRefused(f"{home} is not a directory.\nName another place: toolgate init DIR")
    for name in (FILE_NAME, "policy", "keys"):
        if os.path.lexists(home / name):
            raise StartRefused(f"{home} already has {name}.\nUse it as it is, or name another place: toolgate init DIR")


def _copy_policy(target: Path) -> None:
    target.mkdir()
    for name in FILES:
        (target / name).write_bytes(default_file(name).read_bytes())


def write_new(path: Path, text: str) -> None:
    """A file that is already there is the owner's, and stays."""
    if not path.exists():
        path.write_text(text)


def settings_file(*, policy: bool) -> str:
    """Every setting with its reason, at its default and commented out; what is decided here is not."""
    lines = [
        "# Settings of this Toolgate home. Each is also a TOOLGATE_* variable and, unless secret, a flag. An unknown name",
        "# refuses to start.",
        "# What is in force, and where it comes from: toolgate config print --resolved",
    ]
    # TOML wants keys without a table before the first table.
    for spec in sorted([*SPECS, *store_settings(DEFAULT_PACKS)], key=lambda each: "." in each.key):
        table, _, name = spec.key.rpartition(".")
        if table and f"[{table}]" not in lines:
            lines += ["", f"[{table}]"]
        mark = "" if policy and spec.key == "paths.policy" else "# "
        lines += [f"# {_about(spec)}", f"{mark}{name} = {toml_value(spec.default)}"]
    return "\n".join(lines) + "\n"


def _about(spec: Spec) -> str:
    return spec.about[0].upper() + spec.about[1:] + (f" ({spec.measure})" if spec.measure else "")
