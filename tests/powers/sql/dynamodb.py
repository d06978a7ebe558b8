"""A real DynamoDB server process for tests, out of the package registry: moto's, one a test process, gone when it ends."""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.support import need
from toolgate.powers.stores import TablePlace

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-central-1"
KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What a machine with credentials has, and nothing of this one."""
# One request after the other: DynamoDB judges a condition together with its write, which moto's threads do not. And moto
# backs up the whole table once for each write of a transaction, which takes seconds: once for the transaction is enough.
_PROGRAM = """
import copy, os, sys, threading
from types import SimpleNamespace
from moto.dynamodb import models
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
backups = {}
def deepcopy(one):
    if not isinstance(one, models.Table):
        return copy.deepcopy(one)
    if one.name not in backups:
        backups[one.name] = copy.deepcopy(one)
    return backups[one.name]
transact = models.DynamoDBBackend.transact_write_items
def transact_write_items(self, items):
    backups.clear()
    return transact(self, items)
models.copy = SimpleNamespace(deepcopy=deepcopy)
models.DynamoDBBackend.transact_write_items = transact_write_items
server = make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
print(server.port, flush=True)
def end_with_the_tests():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=end_with_the_tests, daemon=True).start()
server.serve_forever()
"""
_numbers = itertools.count(1)


class DynamoDb:
    """One server; `new_table` gives each test an empty table of its own. What a stopped one held is gone."""

    def __init__(self) -> None:
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._tables: set[str] = set()
        self._session: Any = None
        self.start()
        atexit.register(self.stop)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to use it."""
        return KEYS | {"AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{self._port}"}

    def new_table(self, **schema: str) -> str:
        name = f"toolgate-{next(_numbers)}"
        self._create(name, schema or {"pk": "HASH", "sk": "RANGE"})
        self._tables.add(name)
        return name

    def new_place(self) -> TablePlace:
        return TablePlace(self.new_table(), REGION, 1)

    def drop(self, place: TablePlace) -> None:
        """moto copies all that it holds for every transaction."""
        self._tables.discard(place.table)
        self.client().delete_table(TableName=place.table)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def start(self) -> None:
        """On the same port as before, with the tables that were made, empty."""
        command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(self._port)]
        # Its standard input ends when this process does, however that ends: then so does the server.
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        with self._process.stdout as said:
            self._port = int(said.readline())
        for name in sorted(self._tables):
            self._create(name, {"pk": "HASH", "sk": "RANGE"})

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The process stands still: connections are taken, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _create(self, name: str, schema: dict[str, str]) -> None:
        self.client().create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in schema.items()],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in schema],
            BillingMode="PAY_PER_REQUEST",
        )

    def client(self) -> Any:
        from botocore.session import Session

        self._session = self._session or Session()  # it has read what DynamoDB is, half a second's work
        return self._session.create_client(
            "dynamodb",
            region_name=REGION,
            endpoint_url=f"http://127.0.0.1:{self._port}",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )


@cache
def shared_dynamodb() -> DynamoDb:
    need("dynamodb")
    return DynamoDb()
