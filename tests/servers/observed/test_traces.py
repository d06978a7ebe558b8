"""Spans of real servers, as a collector in a process of its own decodes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faces import speak
from tests.homes import Home, Server, environment, make_home
from tests.servers.processes.workers import at, until_all_serve
from tests.telemetry.receiver import Receiver, receiving
from tests.upstreams.homes import adopting_home, stub_table
from tests.upstreams.support import lines
from tests.waiting import until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stub") / "log"


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver, log: Path) -> Iterator[tuple[Home, Server]]:
    settings = f'[traces]\nendpoint = "{receiver.endpoint}"\nsample = 1.0\n[metrics]\nenabled = true\n'
    tables = {"stub": stub_table("good", log)}
    home = adopting_home(tmp_path_factory.mktemp("traces") / "home", tables, settings=settings)
    with home.serving() as server:
        yield home, server


def record_of(home: Home, request_id: str) -> dict[str, Any]:
    (found,) = [each for each in home.calls() if each["requestId"] == request_id and each["event"] == "outcome"]
    return found


def test_a_call_and_its_span_carry_each_others_ids(traced: tuple[Home, Server], receiver: Receiver) -> None:
    home, server = traced
    heard = speak.mcp_modern(server.port, "dummy_experimental", {}, home.keys["builder"])
    span, record = receiver.span_of(heard.request_id), record_of(home, heard.request_id)
    assert (span["trace"], span["span"], span["parent"]) == (record["traceId"], record["spanId"], "")
    assert span["name"] == "tools/call dummy_experimental"
    assert (span["toolgate.tier"], span["toolgate.environment"]) == ("experimental", "local")
    assert span["toolgate.caller"] == record["caller"]["id"]
    assert home.keys["builder"] not in str(receiver.requests)


def test_a_callers_trace_goes_on_through_the_gate_to_the_upstream(
    traced: tuple[Home, Server], receiver: Receiver, log: Path
) -> None:
    home, server = traced
    headers = {"authorization": f"Bearer {home.keys['admin']}", "traceparent": PARENT}
    body = {"tool": "stub_echo", "args": {"text": "traced"}}
    status, _, answer = speak.send(server.port, "/mrt_dispatch", body, headers)
    assert status == 200
    request = answer["envelope"]["requestId"]
    span, record = receiver.span_of(request), record_of(home, request)
    assert (span["trace"], span["parent"]) == (PARENT[3:35], PARENT[36:52])
    assert (record["traceparent"], record["spanId"]) == (PARENT, span["span"])
    assert lines(log, "trace")[-1] == f"00-{span['trace']}-{span['span']}-01"


def test_a_refused_stranger_is_a_span_with_its_verdict(traced: tuple[Home, Server], receiver: Receiver) -> None:
    home, server = traced
    assert speak.mrt(server.port, "dummy_experimental", {}, None).status == 401
    record = home.calls()[-1]
    span = receiver.span_of(record["requestId"])
    assert (span["error.type"], span["toolgate.verdict"]) == ("missing_key", "missing_key")
    assert "toolgate.caller" not in span


def test_a_caller_that_does_not_want_its_trace_sampled_gets_no_span(
    traced: tuple[Home, Server], receiver: Receiver
) -> None:
    home, server = traced
    headers = speak.key_header(home.keys["builder"]) | {"traceparent": PARENT[:-1] + "0"}
    body = {"tool": "dummy_experimental", "args": {}}
    _, _, unwanted = speak.send(server.port, "/mrt_dispatch", body, headers)
    wanted = speak.mrt(server.port, "dummy_experimental", {}, home.keys["builder"])
    receiver.span_of(wanted.request_id)  # a later call's is there
    assert unwanted["envelope"]["requestId"] not in [span["toolgate.request_id"] for span in receiver.spans]


def test_each_worker_sends_its_own(tmp_path: Path, receiver: Receiver) -> None:
    settings = f'[traces]\nendpoint = "{receiver.endpoint}"\nsample = 1.0\n[server]\nworkers = "2"\n'
    home = make_home(tmp_path / "home", packs=("governance", "unruly"), settings=settings)
    with home.serving() as server:
        until_all_serve(home)
        runs = []
        for number in (0, 1):
            with at(home, server, number) as client:
                runs.append(client.run)
    for run in runs:
        until(lambda run=run: run in [each["resource"]["service.instance.id"] for each in list(receiver.requests)], run)
    assert len(set(runs)) == 2


def test_a_command_line_call_sends_its_span_before_it_ends(tmp_path: Path, receiver: Receiver) -> None:
    settings = f'[traces]\nendpoint = "{receiver.endpoint}"\nsample = 1.0\n'
    home = make_home(tmp_path / "home", settings=settings)
    done = subprocess.run(
        home.command("call", "dummy_experimental", "--json"),
        env=environment(TOOLGATE_API_KEY=home.keys["builder"]),
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    span = receiver.span_of(home.calls()[-1]["requestId"])
    assert (span["name"], span["toolgate.face"]) == ("execute_tool dummy_experimental", "cli")


def test_without_the_setting_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    code = (
        "import sys; from pathlib import Path; from toolgate.app import build; from toolgate.config import load_settings\n"
        "app = build(load_settings(Path(sys.argv[1]), {}, {}))\n"
        "assert app.traces is None and app.road.ledger is app.ledger and app.powers.sampler is None\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'google', 'toolgate.telemetry.t'))]\n"
        "app.ledger.close()"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, str(home.path)], env=dict(os.environ), capture_output=True, check=False
    )
    assert made.returncode == 0, made.stderr.decode()
