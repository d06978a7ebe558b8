"""What every page is made with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from toolgate.console.index.building import Behind
from toolgate.console.index.reading import IndexReader, reading
from toolgate.console.index.tables import BUCKET_MS
from toolgate.console.rendering import iso

if TYPE_CHECKING:
    from toolgate.console.index.reading import Entry
    from toolgate.console.ports import Ports
    from toolgate.console.session import ConsoleSession
    from toolgate.console.web import ConsoleVisit

DAY_MS: Final = 86_400_000


class ConsolePage(Struct, frozen=True):
    template: str
    title: str
    values: Mapping[str, Any]
    status: int = 200


class Desk(Struct, frozen=True):
    """One visit by one person: what a page may ask."""

    ports: Ports
    session: ConsoleSession
    visit: ConsoleVisit
    behind: Behind
    """How far the index is behind the log."""
    now: float

    @contextmanager
    def index(self) -> Iterator[IndexReader]:
        """Raises: sqlite3.Error, OSError."""
        ids = {grant.tool.name: grant.tool_id for grant in self.ports.grants()}
        with reading(self.ports.index, self.ports.log, self.session.owner, ids) as reader:
            yield reader

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def window(self, since_ms: int = 0) -> str:
        """For the address of a list: what was recorded from then on until this page was made. With it a list has as many
        calls as the number that leads to it says, however long a person waits."""
        since = f"since={iso(since_ms)}&" if since_ms else ""
        return f"{since}until={iso(self.now_ms + 1)}"

    def people(self) -> dict[str, tuple[str, str]]:
        """Key id -> (label, role); of other people's keys for those who may see them."""
        keys = self.ports.keys.all() if self.session.sees_all else []
        own = self.session.caller
        found: dict[str, tuple[str, str]] = {own.key_id: (own.label, own.role)}
        return found | {key.id: (key.label, key.role) for key in keys}


def first_of_bucket(since_ms: int) -> int:
    """Where sums that begin at this moment really begin: they are kept by ten minutes."""
    return since_ms // BUCKET_MS * BUCKET_MS


def row_of(entry: Entry, people: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """One call in a list."""
    label, role = people.get(entry.caller, ("", ""))
    return {"entry": entry, "label": label, "role": role, "is_act": entry.kind == 2}


IndexFault = (sqlite3.Error, OSError)
"""What an index that cannot be used raises. The log is unharmed, and the page says so."""
