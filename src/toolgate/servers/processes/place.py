"""One process's place among those of a server: which one it is, what it shares with the others, and how it reaches them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins


class WorkerPlace(Struct, frozen=True):
    number: int
    """0 is the owner: services, jobs and upstreams are its own, and the others reach them there."""
    processes: int
    link: int
    """Descriptor of the socket to the supervisor."""
    listener: int
    """Descriptor of the socket that all of them listen on."""
    table: int
    """Descriptor of the shared counts."""
    owner_socket: str
    """Where the owner is reached."""
    flags: dict[str, Any]
    """Of the command line that started the server."""

    @property
    def is_owner(self) -> bool:
        return self.number == 0

    def as_text(self) -> str:
        return json.dumps(to_builtins(self))

    @classmethod
    def of_text(cls, text: str) -> WorkerPlace:
        return cls(**json.loads(text))

    def listening(self) -> socket.socket:
        return socket.socket(fileno=self.listener)

    def owner_path(self) -> Path:
        return Path(self.owner_socket)
