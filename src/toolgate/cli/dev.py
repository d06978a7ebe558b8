"""`toolgate serve --dev` (what `make run` starts): a home with one key for each role, kept where a developer finds them."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from toolgate.atomic_file import replace_file
from toolgate.cli import output
from toolgate.cli.admin_records import recorded
from toolgate.cli.calls.client_files import configuration, pretty
from toolgate.cli.calls.mcp_config import McpClient
from toolgate.cli.init.home import IGNORED, furnish, write_new
from toolgate.config import FILE_NAME, load_settings
from toolgate.errors import Refusal, StartRefused
from toolgate.gate.keys import KeyRing
from toolgate.model.call import ROLES, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.settings import Settings

KEYS_FILE: Final = "keys.env"
_IGNORED: Final = f"{IGNORED}workspace/\n{FILE_NAME}\n{KEYS_FILE}\n"
"""All that a development home is made of, and nothing else: a repository may keep files of its own beside it."""
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Somebody else's directory, or one that nobody can write."""
_LINE: Final = re.compile(r"([A-Z]+)_KEY=(tg_[0-9a-z_]+)")


class DevKeys(Struct, frozen=True):
    home: Path
    file: Path
    by_role: dict[str, str]
    fresh: bool
    """Made just now: shown once. Later only the file is named."""

    def announce(self, url: str, standing: Callable[[], None], *, console: bool = False) -> None:
        """What a newcomer needs next: addresses, keys, one call to paste, one client configuration to paste. `standing`: says
        what binds here."""
        output.say(f"\nToolgate is ready at {url}", style="bold green")
        output.say(f"  MCP       {url}/mcp\n  dispatch  {url}/mrt_dispatch\n  JSON-RPC  {url}/rpc")
        if console:
            output.say(f"  console   {url}/console/   (sign in with one of the keys)")
        standing()
        output.say("")
        if self.fresh:
            output.say("Development keys, shown only now:", style="bold")
            output.say("".join(f"  {role:<10} {self.by_role[role]}\n" for role in ROLES))
        output.say(f"The keys are in {self.file} (mode 0600).\n")
        output.say("Call a tool:", style="bold")
        output.say(self._curl(url))
        output.say("Configure an MCP client (here Claude Code; others: toolgate mcp-config):", style="bold")
        output.say(pretty(self._client(url)))
        output.say("Ctrl+C stops the server.")

    def _curl(self, url: str) -> str:
        body = '{"tool": "dummy_experimental", "args": {}}'
        return (
            f'  . {self.file}\n  curl -s {url}/mrt_dispatch -H "X-MCP-API-Key: $BUILDER_KEY" '
            f"-H 'Content-Type: application/json' -d '{body}'\n"
        )

    def _client(self, url: str) -> dict[str, object]:
        key = self.by_role["builder"] if self.fresh else "${BUILDER_KEY}"
        return configuration(
            McpClient.claude_code, {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}"}}
        )


def prepare(home: Path, *, chosen: bool = False) -> DevKeys:
    """A development home that is complete, with keys that work. Side effects: writes below `home`.

    Raises: StartRefused: it is another user's.
    """
    try:
        return _prepared(home, chosen=chosen)
    except OSError as fault:
        if fault.errno not in _NOT_OURS:
            raise
        raise StartRefused(
            f"{fault.filename or home}: {fault.strerror}.\nUse a home of your own: --home DIR. It is made if it is not there."
        ) from None


def _prepared(home: Path, *, chosen: bool) -> DevKeys:
    place = home.absolute()
    complete = (place / FILE_NAME).exists()
    settings = load_settings(place, {}, {}, chosen=chosen) if complete else furnish(place, policy=False)
    write_new(place / ".gitignore", _IGNORED)
    file = home / KEYS_FILE
    ring = KeyRing(settings.paths.keys)
    kept = {role: key for role, key in _read(file).items() if _works(ring, role, key)}
    missing = [role for role in ROLES if role not in kept]
    keys = kept | {role: _create(settings, ring, role) for role in missing}
    if missing:
        replace_file(file, "".join(f"{role.upper()}_KEY={keys[role]}\n" for role in ROLES).encode())
    return DevKeys(place, file, keys, fresh=bool(missing))


def _create(settings: Settings, ring: KeyRing, role: Role) -> str:
    with recorded(settings, "keys.create", {"role": role, "label": "development", "expires": None}) as found:
        key, text = ring.create(role, label="development")
        found["id"] = key.id
    return text


def _read(file: Path) -> dict[str, str]:
    text = file.read_text() if file.exists() else ""
    return {found[1].lower(): found[2] for found in _LINE.finditer(text)}


def _works(ring: KeyRing, role: str, key: str) -> bool:
    try:
        return ring.authenticate(key.encode()).role == role
    except Refusal:
        return False
