"""Several processes behind one port: replaced when they die, limited and stopped together, one owner of what is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faces import speak
from tests.homes import PATIENCE_S, Home, Server, environment, make_home, until_closed
from tests.offers.client import GREETING
from tests.offers.client import Client as McpClient
from tests.servers.processes.workers import ECHO, ask, at, only, until_all_serve, workers
from tests.upstreams.homes import Swapping, adopting_home
from tests.upstreams.support import lines
from tests.waiting import until

pytestmark = pytest.mark.guard
LIMIT = 3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Server, Swapping]]:
    path = tmp_path_factory.mktemp("workers")
    swapping = Swapping(path)
    home = adopting_home(
        path / "home",
        {"stub": swapping.table()},
        packs=("governance", "unruly", "everything"),
        settings=f"[limits]\nconcurrency_per_caller = {LIMIT}\n",
    )
    swapping.log.unlink()
    with home.serving("--workers", "2") as server:
        yield home, server, swapping


def _fresh(home: Home) -> None:
    (home.workspace / "release").unlink(missing_ok=True)


def _release(home: Home) -> None:
    (home.workspace / "release").touch()


def test_each_worker_has_a_run_of_its_own_and_the_log_is_whole(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    runs = set()
    for number in (0, 1):
        with at(home, server, number) as client:
            runs.add(client.run)
    assert len(runs) == 2
    assert runs <= {record["run"] for record in home.calls()}
    verified = subprocess.run(
        home.command("audit", "verify", "--json"),
        env=environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout
    exported = subprocess.run(
        home.command("audit", "export"), env=environment(), capture_output=True, timeout=PATIENCE_S, check=True
    )
    times = [json.loads(line)["ts"] for line in exported.stdout.splitlines()]
    assert times == sorted(times)


def test_the_limit_of_a_key_holds_over_all_workers_and_a_killed_one_s_slots_come_back(
    served: tuple[Home, Server, Swapping],
) -> None:
    home, server, _ = served
    _fresh(home)
    until_all_serve(home)
    with ExitStack() as stack:
        first = [stack.enter_context(at(home, server, 1)) for _ in range(2)]
        second = [stack.enter_context(at(home, server, 0)) for _ in range(3)]
        for client in (*first, second[0]):
            client.send("unruly_hold", {}, "builder")
        until(lambda: ask(home, "status")["limits"]["held"] == LIMIT, "all slots of the key are taken")
        assert second[1].call("unruly_hold", {}, "builder")[0] == 429
        assert second[1].call("unruly_echo", ECHO, "builder")[0] == 429, "an inline call must find a free slot"
        assert second[1].call("unruly_echo", ECHO, "admin")[0] == 200, "another key has its own"
        os.kill(workers(home)[1]["pid"], signal.SIGKILL)
        until(lambda: ask(home, "status")["limits"]["held"] == 1, "what the killed one held is free")
        for client in second[1:]:
            client.send("unruly_hold", {}, "builder")
        until(lambda: ask(home, "status")["limits"]["held"] == LIMIT, "and is used")
        _release(home)
        assert [client.hear()[0] for client in second] == [200, 200, 200]
    assert until_all_serve(home)[1]["replaced"] >= 1
    assert ask(home, "status")["limits"]["held"] == 0


def test_a_rate_holds_over_all_workers_and_a_reload_reaches_all_of_them(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    until_all_serve(home)
    path = home.path / "toolgate.toml"
    before = path.read_text()
    try:
        with at(home, server, 0) as one, at(home, server, 1) as other:
            path.write_text(before.replace("[limits]\n", "[limits]\nrate_per_minute = 5\n"))
            assert ask(home, "reload")["settings"] == ["limits.rate_per_minute"]
            statuses = [client.call("unruly_echo", ECHO, "committer")[0] for _ in range(5) for client in (one, other)]
        assert sorted(statuses) == [200] * 5 + [429] * 5
        path.write_text("[limits")
        refused = ask(home, "reload")
        assert not refused["reloaded"]
        assert "toolgate.toml" in refused["reason"]
    finally:
        path.write_text(before)
    assert ask(home, "reload")["reloaded"]
    acts = [record for record in home.records() if record.get("act") == "reload" and record["stage"] == "outcome"]
    assert len({record["run"] for record in acts if record["status"] == "ok"}) == 2, "each run has its record"


def test_an_upstream_has_one_child_whichever_worker_is_called(served: tuple[Home, Server, Swapping]) -> None:
    home, server, swapping = served
    until_all_serve(home)
    for number in (1, 0, 1):
        with at(home, server, number) as client:
            status, body = client.call("stub_echo", ECHO)
            assert status == 200, body
    assert len(lines(swapping.log, "pid")) == 1
    assert [state["state"] for state in ask(home, "status")["upstreams"]] == ["up"]


def test_when_the_owner_is_killed_it_is_replaced_and_others_find_the_new_one(
    served: tuple[Home, Server, Swapping],
) -> None:
    home, server, _ = served
    before = until_all_serve(home)
    with at(home, server, 1) as client:
        os.kill(before[0]["pid"], signal.SIGKILL)
        until(lambda: workers(home)[0]["replaced"] > before[0]["replaced"], "the owner is replaced")
        until_all_serve(home)
        assert client.call("stub_echo", ECHO)[0] == 200


def test_a_cancellation_reaches_the_call_at_another_worker(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    _fresh(home)
    until_all_serve(home)
    headers = {"MCP-Protocol-Version": "2025-11-25", "authorization": f"Bearer {home.keys['admin']}"}
    with at(home, server, 0) as one, at(home, server, 1) as other:
        call = speak.mcp_message("unruly_hold", {}, modern=False) | {"id": "to-cancel"}
        one.send_to("/mcp", call, headers)
        until(lambda: [each["tool"] for each in workers(home)[0]["calls"]] == ["unruly_hold"], "the call is under way")
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "to-cancel"}}
        assert other.post("/mcp", note, headers)[0] == 202
        _, answer = one.hear()
    assert "cancelled" in json.dumps(answer)
    assert not (home.workspace / "release").exists(), "nothing else ended it"


def test_an_answer_to_what_a_call_asked_may_come_to_another_worker(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    until_all_serve(home)
    name = "test_input_required_result_elicitation"
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name}
    headers |= speak.key_header(home.keys["admin"])
    message = speak.mcp_message(name, {}, modern=True)
    message["params"]["_meta"] = speak.META | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    with at(home, server, 0) as one, at(home, server, 1) as other:
        _, asked = one.post("/mcp", message, headers)
        state = asked["result"]["requestState"]
        answers = {"user_name": {"action": "accept", "content": {"name": "Ada"}}}
        message["params"] |= {"inputResponses": answers, "requestState": state}
        _, done = other.post("/mcp", message, headers)
    assert done["result"]["structuredContent"]["data"] == {"said": "Hello, Ada!"}


def test_an_answer_within_a_call_may_come_to_another_worker(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    until_all_serve(home)
    client = McpClient(server.port, home.keys["admin"])
    client.ask("initialize", GREETING | {"capabilities": {"elicitation": {}}})
    with ExitStack() as stack:
        with only(home, 0):
            call = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
            heard = stack.enter_context(client.calling("tools/call", call))
            asked = next(heard)
        until_all_serve(home)
        with only(home, 1):
            client.respond(
                asked["id"], {"action": "accept", "content": {"username": "Ada", "email": "ada@example.com"}}
            )
        answer = next(heard)
    assert "action=accept" in json.dumps(answer)


def test_a_stopped_worker_is_told_and_the_others_go_on(served: tuple[Home, Server, Swapping]) -> None:
    home, server, _ = served
    found = until_all_serve(home)
    with at(home, server, 0) as client:
        os.kill(found[1]["pid"], signal.SIGSTOP)
        try:
            assert client.call("unruly_echo", ECHO)[0] == 200
        finally:
            os.kill(found[1]["pid"], signal.SIGCONT)
    until_all_serve(home)


def test_sigterm_drains_every_worker(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving("--workers", "2") as server:
        assert server.ready["workers"] == 2
        with at(home, server, 0) as one, at(home, server, 1) as other:
            for client in (one, other):
                client.send("unruly_hold", {})
            until(lambda: ask(home, "status")["limits"]["held"] == 2, "both are under way")
            pids = [worker["pid"] for worker in workers(home)]
            server.process.terminate()
            until_closed(server.port)
            _release(home)
            assert [client.hear()[0] for client in (one, other)] == [200, 200]
        assert server.process.wait(PATIENCE_S) == 0
    assert not any(_is_there(pid) for pid in pids)
    verified = subprocess.run(home.command("audit", "verify"), env=environment(), capture_output=True, check=False)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize(("drain_s", "ending"), [("0.1", "cancelled"), ("60", "deadline_exceeded")])
def test_calls_that_never_end_have_the_drain_time_in_every_worker(tmp_path: Path, drain_s: str, ending: str) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving("--workers", "2", "--server-drain-seconds", drain_s) as server:
        with at(home, server, 0) as one, at(home, server, 1) as other:
            for client in (one, other):
                client.send("unruly_linger", {})
            until(lambda: ask(home, "status")["limits"]["held"] == 2, "both are under way")
            server.process.terminate()
            heard = [client.hear()[1]["details"]["reason"] for client in (one, other)]
        assert heard == [ending, ending]
        assert server.process.wait(PATIENCE_S) == 0


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    with home.serving("--workers", "2") as server:
        pids = [worker["pid"] for worker in workers(home)]
        server.process.kill()
        server.process.wait(PATIENCE_S)
        until(lambda: not any(_is_there(pid) for pid in pids), "the workers have ended")


def test_what_stands_in_the_way_of_a_start_is_said_once(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    (home.path / "policy" / "mcp-tools.policy.json").write_text("{")
    done = subprocess.run(
        home.command("serve", "--port", "0", "--workers", "2"),
        env=environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count(b"mcp-tools.policy.json") == 1
    assert b"Traceback" not in done.stderr


def test_a_word_that_is_no_number_of_workers_is_refused(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", packs=("unruly",))
    for wrong in ("0", "many", "100"):
        done = subprocess.run(
            home.command("serve", "--workers", wrong), env=environment(), capture_output=True, check=False
        )
        assert (done.returncode, b"auto" in done.stderr) == (1, True)
