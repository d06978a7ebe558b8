"""A server of several processes, and ways to reach one of them."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server
from tests.waiting import until
from toolgate.cli.running.client import ask_all

ECHO = {"text": "hello"}


def ask(home: Home, question: str) -> dict[str, Any]:
    (answer,) = ask_all(SimpleNamespace(home=home.path, paths=SimpleNamespace(state=home.path / "state")), question)
    return answer


def workers(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(home, "status")["workers"]
    return found


def until_all_serve(home: Home) -> list[dict[str, Any]]:
    """Every worker answers. Who was replaced has said that it serves."""
    until(lambda: all(worker["answers"] for worker in workers(home)), "all workers answer")
    return workers(home)


class Client:
    """A connection that one worker has accepted."""

    def __init__(self, home: Home, connection: http.client.HTTPConnection, run: str) -> None:
        self._home, self._connection, self.run = home, connection, run

    def send(self, tool: str, arguments: dict[str, Any], role: str = "admin") -> None:
        body = json.dumps({"tool": tool, "args": arguments})
        headers = {"content-type": "application/json", **speak.key_header(self._home.keys[role])}
        self._connection.request("POST", "/mrt_dispatch", body, headers)

    def hear(self) -> tuple[int, dict[str, Any]]:
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def call(self, tool: str, arguments: dict[str, Any], role: str = "admin") -> tuple[int, dict[str, Any]]:
        self.send(tool, arguments, role)
        return self.hear()

    def post(self, path: str, message: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        self._connection.request("POST", path, json.dumps(message), {"content-type": "application/json", **headers})
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def send_to(self, path: str, message: dict[str, Any], headers: dict[str, str]) -> None:
        self._connection.request("POST", path, json.dumps(message), {"content-type": "application/json", **headers})

    def close(self) -> None:
        self._connection.close()


@contextmanager
def only(home: Home, number: int) -> Iterator[None]:
    """While all workers but this one are stopped."""
    others = [worker["pid"] for worker in workers(home) if worker["number"] != number]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def at(home: Home, server: Server, number: int) -> Iterator[Client]:
    """A client whose connection worker `number` has: the others are stopped while it is accepted."""
    found = workers(home)
    others = [worker["pid"] for worker in found if worker["number"] != number]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        client = Client(home, connection, found[number]["run"])
        status, body = client.call("unruly_echo", ECHO)
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    assert status == 200
    assert body["envelope"]["audit"]["run"] == client.run
    try:
        yield client
    finally:
        connection.close()
