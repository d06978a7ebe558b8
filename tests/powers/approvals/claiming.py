"""One of several processes that make the same call: it asks until it is killed, and has an effect for each grant it spent."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tests.powers.approvals.requests import a_request
from toolgate.errors import StoreUnavailable
from toolgate.powers import sql, stores
from toolgate.powers.approvals.tables import ApprovalTables


async def main(place: str, effects: str) -> None:
    store = ApprovalTables(place)
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while os.getppid() != 1:
        try:
            claim = await store.claim(a_request(os.urandom(8).hex()), time.time())
        except StoreUnavailable:
            continue
        if claim.state == "spent":
            os.write(file, f"{claim.id}\n".encode())


if __name__ == "__main__":
    # Eight writers on a busy machine: what is not waited for would be a grant that was spent for nothing.
    sql.SQLITE_BUSY_TIMEOUT_S, sql.STATEMENT_TIMEOUT_MS, stores.RUN_TIMEOUT_S = 60, 60_000, 120.0  # type: ignore[misc]
    asyncio.run(main(*sys.argv[1:]))
