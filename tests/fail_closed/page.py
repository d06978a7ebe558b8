"""`docs/reference/fail-closed.md`: its tables are what the tests have seen.

`make fail-closed` writes a row for each fault that a test makes; without it the page must say the same.
"""

from __future__ import annotations

import http.client
import json
import os
from typing import Any

from tests.faces import speak
from tests.homes import PATIENCE_S, ROOT, Home, Server

PAGE = ROOT / "docs" / "reference" / "fail-closed.md"
END = "<!-- end -->"
READY = "`/readyz` 200"


class Table:
    """One table of the page."""

    def __init__(self, name: str) -> None:
        self._begin = f"<!-- made: {name} -->"

    def rows(self) -> list[str]:
        return PAGE.read_text().partition(self._begin)[2].partition(END)[0].strip().splitlines()

    def faults(self) -> list[str]:
        return sorted(line.split(" | ")[0].removeprefix("| ") for line in self.rows()[2:])

    def hold(self, fault: str, *cells: str) -> None:
        """The row of this fault, as it was seen: written, or compared with what the page says."""
        row = f"| {' | '.join([fault, *cells])} |"
        if os.environ.get("FAIL_CLOSED") == "write":
            self._write(fault, row)
        assert row in self.rows()

    def _write(self, fault: str, row: str) -> None:
        head, _, rest = PAGE.read_text().partition(self._begin)
        made, _, tail = rest.partition(END)
        kept = [line for line in made.strip().splitlines() if not line.startswith(f"| {fault} |")]
        body = "\n".join([*kept[:2], *sorted([*kept[2:], row])])
        PAGE.write_text(f"{head}{self._begin}\n{body}\n{END}{tail}")


def ended(home: Home, server: Server, tool: str, arguments: Any, role: str = "admin") -> str:
    """How a call ended, as its caller is told."""
    heard = speak.mrt(server.port, tool, arguments, home.keys[role])
    if heard.status == 200:
        return _verdict(heard.envelope or {})
    found = heard.reason or heard.code
    effect = (heard.body.get("details") or {}).get("effect")
    return f"{heard.status} `{found}`" + (f" with `effect: {effect}`" if effect else "")


def _verdict(envelope: dict[str, Any]) -> str:
    """`OK`, or what an answer says besides."""
    said = [f"`{envelope[name]}`" for name in ("decision", "code") if envelope.get(name)]
    return " ".join(said + (["`degradedMode`"] if envelope.get("degradedMode") else [])) or "OK"


def readiness(server: Server) -> str:
    """`/readyz`, with the checks that fail."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/readyz")
        reply = connection.getresponse()
        checks: dict[str, Any] = json.loads(reply.read())["checks"]
    finally:
        connection.close()
    failing = ", ".join(f"`{name}`" for name, good in checks.items() if not good)
    return f"`/readyz` {reply.status}" + (f" ({failing})" if failing else "")
