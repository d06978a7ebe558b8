"""Who may change what a server obeys: its home, its settings, its policy, its keys.

Settings name a program that runs as this user (`ledger.anchor_command`), and policy says who may call what. So whoever can
write them can act as this user, and a server does not start from what others can write. As with ssh, an owner is this user
or root, and nobody else has write permission. What is mounted read-only cannot be written, whatever its mode says; a group
of the same name as the owner, without other members, is the owner. A team that shares a home names its group where the
server is started: the settings themselves cannot vouch for who may write them.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import SettingsError, StartRefused

if TYPE_CHECKING:
    from toolgate.settings import Settings

TRUSTED_USER: Final = "TOOLGATE_TRUSTED_USER"
TRUSTED_GROUP: Final = "TOOLGATE_TRUSTED_GROUP"
MAX_POLICY_FILES: Final = 1000
"""Files of a policy that are looked at; three are ours, the others are decision records."""


def check_owners(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raises: StartRefused: names what others can write, and the fix. SettingsError: no such user or group."""
    users = {0, os.geteuid()} | _ids(TRUSTED_USER, environ)
    groups = _ids(TRUSTED_GROUP, environ)
    faults = [fault for path in _obeyed(settings) if (fault := _fault(path, users, groups)) is not None]
    if faults:
        texts, fixes = zip(*faults, strict=True)
        raise StartRefused("\n".join([f"{'; '.join(texts)}.", *dict.fromkeys(fixes)]))


def process_origin(way: str) -> dict[str, Any]:
    """Who does something to the deployment, and from where, for the audit log: as the system says it, because variables can
    say anything."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run as a number
        user = None
    return {"by": {"user": user, "uid": uid}, "from": {"host": socket.gethostname(), "way": way}}


def _obeyed(settings: Settings) -> Iterator[Path]:
    """What is there of it, each with the directory that a link leads into: who can write that can replace what we read."""
    paths = settings.paths
    policy = [] if paths.policy is None else [paths.policy, *islice(paths.policy.rglob("*"), MAX_POLICY_FILES)]
    for path in (settings.home, settings.file, paths.keys.parent, paths.secrets, *sorted(policy)):
        if path is not None and path.exists():
            yield path
            if path.is_symlink():
                yield path.resolve().parent


def _fault(path: Path, users: set[int], groups: set[int]) -> tuple[str, str] | None:
    """What is wrong with a path, and the fix."""
    info = path.stat()
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return None
    if info.st_uid not in users:
        fix = f"Run the server as that user, or chown it; to trust them, start with {TRUSTED_USER}={info.st_uid}."
        return f"{path} belongs to user {info.st_uid}, who could change what this server does", fix
    mode = stat.S_IMODE(info.st_mode)
    if mode & stat.S_IWOTH:
        return f"{path} can be written by everyone (mode {mode:04o})", f"Run: chmod go-w {path}"
    if mode & stat.S_IWGRP and info.st_gid not in groups and not _is_private_group(info.st_uid, info.st_gid):
        fix = f"Run: chmod g-w {path} (or, to trust the group, start with {TRUSTED_GROUP}={info.st_gid})."
        return f"{path} can be written by group {info.st_gid} (mode {mode:04o})", fix
    return None


def _is_private_group(uid: int, gid: int) -> bool:
    """The group that many systems make for each user; files made there are writable by it."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def _ids(variable: str, environ: Mapping[str, str]) -> set[int]:
    """The one user or group that a variable names, by number or by name."""
    name = environ.get(variable, "")
    if not name:
        return set()
    if name.isascii() and name.isdigit():
        return {int(name)}
    try:
        return {pwd.getpwnam(name).pw_uid if variable == TRUSTED_USER else grp.getgrnam(name).gr_gid}
    except KeyError:
        what = "user" if variable == TRUSTED_USER else "group"
        raise SettingsError(f"{variable}: there is no {what} {name}.\nGive a name or a number.") from None
