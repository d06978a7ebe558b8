"""`toolgate serve --dev` (what `make run` starts): a home with one key for each role, kept where a developer finds them."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from msgspec import Struct

from toolgate.cli import output
from toolgate.cli.init import furnish
from toolgate.cli.mcp_config import Client, configuration, pretty
from toolgate.config import FILE_NAME, load_settings
from toolgate.errors import Refusal
from toolgate.gate.keys import KeyRing
from toolgate.model.call import ROLES

KEYS_FILE: Final = "keys.env"
_LINE: Final = re.compile(r"([A-Z]+)_KEY=(tg_[0-9a-z_]+)")


class DevKeys(Struct, frozen=True):
    home: Path
    file: Path
    by_role: dict[str, str]
    fresh: bool
    """Made just now: shown once. Later only the file is named."""

    def announce(self, url: str) -> None:
        """What a newcomer needs next: addresses, keys, one call to paste, one client configuration to paste."""
        output.say(f"\nToolgate is ready at {url}", style="bold green")
        output.say(f"  MCP       {url}/mcp\n  dispatch  {url}/mrt_dispatch\n  JSON-RPC  {url}/rpc\n")
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
            Client.claude_code, {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {key}"}}
        )


def prepare(home: Path) -> DevKeys:
    """A development home that is complete, with keys that work. Side effects: writes below `home`."""
    place = home.absolute()
    settings = load_settings(place, {}, {}) if (place / FILE_NAME).exists() else furnish(place, policy=False)
    file = home / KEYS_FILE
    ring = KeyRing(settings.paths.keys)
    kept = {role: key for role, key in _read(file).items() if _works(ring, role, key)}
    missing = [role for role in ROLES if role not in kept]
    keys = kept | {role: ring.create(role, label="development")[1] for role in missing}
    if missing:
        _write(file, keys)
    return DevKeys(place, file, keys, fresh=bool(missing))


def _read(file: Path) -> dict[str, str]:
    text = file.read_text() if file.exists() else ""
    return {found[1].lower(): found[2] for found in _LINE.finditer(text)}


def _works(ring: KeyRing, role: str, key: str) -> bool:
    try:
        return ring.authenticate(key.encode()).role == role
    except Refusal:
        return False


def _write(file: Path, keys: dict[str, str]) -> None:
    """Never readable by others, not even while it is written."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as opened:
        opened.writelines(f"{role.upper()}_KEY={keys[role]}\n" for role in ROLES)
    new.replace(file)
