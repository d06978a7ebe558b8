"""For each guard of the road, one line is changed so that the check is gone; a named test must turn red.

    python scripts/mutations.py [NAME ...]      all, or those whose name contains a word

The tree is copied; the project itself is never touched. A mutant that survives is a check that nothing holds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """In `file`, `line` becomes `mutant`; `test` must fail then."""

    name: str
    file: str
    line: str
    mutant: str
    test: str


GATE = "src/toolgate/gate"
ROAD_TESTS = "tests/gate/test_road.py"
HOSTILE = "tests/servers/test_hostile_http.py"
OUTBOX = "tests/servers/test_outbox.py"
GATHER = "tests/ledger/test_gather.py"
REFUSAL = f"{ROAD_TESTS}::test_a_refusal_comes_before_the_handler"
MUTATIONS = (
    Mutation(
        "1 authenticate: any key is good",
        f"{GATE}/keys.py",
        "if known is None or not right:",
        "if known is None:",
        "tests/config/test_callers_keys.py",
    ),
    Mutation(
        "1 authenticate: revoked keys live",
        f"{GATE}/keys.py",
        '(state := known.key.state(self._clock.wall())) != "live":',
        '(state := known.key.state(self._clock.wall())) == "expired":',
        f"{ROAD_TESTS}::test_a_revoked_key_is_dead_at_once",
    ),
    Mutation(
        "1 authenticate: expired keys live",
        f"{GATE}/keys.py",
        '(state := known.key.state(self._clock.wall())) != "live":',
        '(state := known.key.state(self._clock.wall())) == "revoked":',
        f"{HOSTILE}::test_revoked_and_expired_keys_are_refused",
    ),
    Mutation(
        "1 authenticate: two keys",
        "src/toolgate/servers/heads.py",
        "if key is not None and bearer is not None and key != bearer:",
        "if False:",
        f"{HOSTILE}::test_two_different_keys_are_refused",
    ),
    Mutation(
        "1 authenticate: two headers",
        "src/toolgate/servers/heads.py",
        'if b"x-mcp-api-key" in twice or b"authorization" in twice:',
        "if False:",
        f"{HOSTILE}::test_two_key_headers_are_refused_even_if_both_are_good",
    ),
    Mutation(
        "2 permit: any role",
        f"{GATE}/permit.py",
        "if caller.role not in grant.roles:",
        "if False:",
        f"{ROAD_TESTS}::test_a_tool_of_another_role_is_refused_and_names_the_role",
    ),
    Mutation(
        "2 permit: lists show all",
        f"{GATE}/permit.py",
        "return [grant for grant in self._by_name.values() if caller.role in grant.roles]",
        "return list(self._by_name.values())",
        f"{ROAD_TESTS}::test_list_and_call_are_decided_by_the_same_table",
    ),
    Mutation(
        "2 permit: argument roles",
        f"{GATE}/road.py",
        "permit_arguments(ticket.caller, ticket.grant.tool, arguments)",
        "pass",
        f"{ROAD_TESTS}::test_a_role_may_hold_a_tool_but_not_each_of_its_arguments",
    ),
    Mutation(
        "3 admit: no limit",
        f"{GATE}/admit.py",
        "if held >= self._per_caller:",
        "if False:",
        f"{ROAD_TESTS}::test_the_eleventh_call_at_once_is_refused_even_with_bad_arguments",
    ),
    Mutation(
        "3 admit: no total", f"{GATE}/admit.py", "if self._all >= self._total:", "if False:", "tests/gate/test_admit.py"
    ),
    Mutation("3 admit: no rate", f"{GATE}/admit.py", "if wait > 1e-9:", "if False:", "tests/gate/test_admit.py"),
    Mutation(
        "3 admit: a slot never comes back", f"{GATE}/road.py", "self.slots.give_back(self.caller)", "pass", REFUSAL
    ),
    Mutation(
        "3 admit: a slot comes back too early",
        f"{GATE}/execute.py",
        "future.add_done_callback(lambda _: self._on_end())",
        "self._on_end()",
        f"{ROAD_TESTS}::test_a_slot_is_held_until_the_handler_has_really_ended",
    ),
    Mutation(
        "4 validate in: not at all",
        f"{GATE}/road.py",
        "if not ticket.grant.io.input.is_valid(arguments):",
        "if False:",
        REFUSAL,
    ),
    Mutation(
        "4 validate in: 1.0 is an integer",
        f"{GATE}/validate.py",
        'if copy.get("type") == "integer":',
        "if False:",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "4 validate in: remote references",
        f"{GATE}/validate.py",
        'raise ValueError(f"remote $ref refused: {uri}")',
        "return {}",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "5 intent: not written",
        f"{GATE}/road.py",
        "await self._intend(ticket)  # 5",
        "pass",
        f"{ROAD_TESTS}::test_intent_is_on_disk_before_an_effect_and_outcome_before_the_answer",
    ),
    Mutation(
        "5 intent: not synced",
        f"{GATE}/road.py",
        "await self.ledger.durable(place)\n        except LedgerUnavailable:\n            raise",
        "pass\n        except LedgerUnavailable:\n            raise",
        f"{ROAD_TESTS}::test_intent_is_on_disk_before_an_effect_and_outcome_before_the_answer",
    ),
    Mutation(
        "5 intent: a failed one is ignored",
        f"{GATE}/road.py",
        "raise Refusal(Happening.UNAVAILABLE, _NOT_WRITTEN) from None",
        "return",
        f"{ROAD_TESTS}::test_without_a_written_intent_nothing_runs",
    ),
    Mutation(
        "6 run: no deadline",
        f"{GATE}/execute.py",
        "timeout=self._tool.deadline_s",
        "timeout=None",
        f"{ROAD_TESTS}::test_a_handler_past_its_deadline_is_answered_for_while_others_are_served",
    ),
    Mutation(
        "6 run: the words of an exception",
        f"{GATE}/execute.py",
        'return _failed("crashed", "The tool failed.")\n    if not',
        'return _failed("crashed", repr(sys.exc_info()[1]))\n    if not',
        f"{ROAD_TESTS}::test_whatever_a_handler_raises_is_one_typed_outcome_without_its_words",
    ),
    Mutation(
        "6 run: any answer is a result",
        f"{GATE}/execute.py",
        "if not isinstance(result, Result):",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: no schema",
        f"{GATE}/road.py",
        "if not ticket.grant.io.output.is_valid(data):",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: no size",
        f"{GATE}/road.py",
        "if len(outcome.data_json) > self.max_output_bytes:",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: any decision",
        f"{GATE}/road.py",
        "if decision is not None and decision not in DECISIONS:",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: not strict",
        f"{GATE}/road.py",
        "data_json = strictjson.encode_checked(data)",
        "data_json = strictjson.dumps(data)",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "8 floor: experimental blocks",
        f"{GATE}/floor.py",
        'if decision == "block":\n            clamps += (Clamp("experimental',
        'if False:\n            clamps += (Clamp("experimental',
        "tests/gate/test_floor.py",
    ),
    Mutation(
        "8 floor: L0 codes", f"{GATE}/floor.py", "if code in L0_ONLY_CODES:", "if False:", "tests/gate/test_floor.py"
    ),
    Mutation(
        "8 floor: local binds",
        f"{GATE}/floor.py",
        'elif environment == "local":',
        "elif False:",
        "tests/gate/test_floor.py",
    ),
    Mutation(
        "9 outcome: not written",
        f"{GATE}/road.py",
        "place = self.ledger.append(self._outcome(ticket, outcome, envelope, acted=acts))  # 9",
        'place = Place("", 0, "")',
        f"{ROAD_TESTS}::test_a_read_leaves_one_record_and_waits_for_no_sync",
    ),
    Mutation(
        "9 outcome: the answer leaves anyway",
        f"{GATE}/road.py",
        'unknown = {"effect": "unknown"} if acts else None',
        "place = Place('', 0, '')\n            unknown = None",
        f"{ROAD_TESTS}::test_an_answer_that_cannot_be_recorded_is_withheld_and_says_so",
    ),
    Mutation(
        "wire: any host",
        "src/toolgate/servers/http.py",
        "if not head.served:",
        "if False:",
        f"{HOSTILE}::test_a_wrong_host_is_refused_on_loopback_too",
    ),
    Mutation(
        "wire: any origin",
        "src/toolgate/servers/heads.py",
        "return origin is None or origin.lower() in self.origins",
        "return True",
        f"{HOSTILE}::test_a_wrong_origin_is_refused",
    ),
    Mutation(
        "wire: any size",
        "src/toolgate/servers/http.py",
        "if not head.fits:",
        "if False:",
        f"{HOSTILE}::test_a_declared_length_is_refused_before_the_body_comes",
    ),
    Mutation(
        "wire: any media type",
        "src/toolgate/servers/http.py",
        "if not head.sends_json:",
        "if False:",
        f"{HOSTILE}::test_a_wrong_content_type_is_refused",
    ),
    Mutation(
        "wire: any transfer encoding",
        "src/toolgate/servers/guarded.py",
        'self._refuse(400, "unsupported_transfer_encoding")',
        "pass",
        f"{HOSTILE}::test_other_transfer_encodings_are_refused",
    ),
    Mutation(
        "wire: two hosts",
        "src/toolgate/servers/guarded.py",
        '.count(b"host") != 1',
        '.count(b"host") == 0',
        f"{HOSTILE}::test_two_hosts_are_refused",
    ),
    Mutation(
        "wire: any number of headers",
        "src/toolgate/servers/guarded.py",
        "len(headers) > self.limits.max_headers",
        "False",
        f"{HOSTILE}::test_three_hundred_headers_are_refused",
    ),
    Mutation(
        "wire: slow headers",
        "src/toolgate/servers/guarded.py",
        "self._timer = self.loop.call_later(seconds, self._too_slow)",
        "pass",
        f"{HOSTILE}::test_a_client_that_never_ends_its_headers_is_closed",
    ),
    Mutation(
        "lane: a known head takes any body",
        "src/toolgate/servers/lane.py",
        "head is not None and head.length == len(data) - end and self._is_free()",
        "head is not None and self._is_free()",
        "tests/servers/test_lane.py",
    ),
    Mutation(
        "lane: an answer under way is overtaken",
        "src/toolgate/servers/lane.py",
        "(cycle is None or cycle.response_complete)",
        "True",
        "tests/servers/test_lane.py::test_a_quick_answer_does_not_overtake_one_that_waits",
    ),
    Mutation(
        "lane: a client that does not read is answered",
        "src/toolgate/servers/lane.py",
        "and not self.flow.write_paused",
        "",
        "tests/servers/test_lane.py::test_a_client_that_does_not_read_is_not_answered_on_and_on",
    ),
    Mutation(
        "4 validate in: what nobody can explain is let through",
        f"{GATE}/explain.py",
        " or [_SOMETHING]",
        "",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "outbox: answers leave before their records",
        "src/toolgate/servers/outbox.py",
        "            self.ledger.flush()",
        "            pass",
        OUTBOX,
    ),
    Mutation(
        "outbox: an answer without a record is sent",
        "src/toolgate/servers/outbox.py",
        "connection.send_held(self._unrecorded(reply, head, body))",
        "connection.send_held(reply)",
        f"{OUTBOX}::test_when_the_log_fails_every_held_answer_says_so_and_none_is_lost",
    ),
    Mutation(
        "outbox: a held answer is overtaken",
        "src/toolgate/servers/lane.py",
        "            self.app.outbox.send()",
        "            pass",
        f"{OUTBOX}::test_a_client_that_does_not_wait_for_its_answers_gets_them_in_order",
    ),
    Mutation(
        "outbox: stopping loses a held answer",
        "src/toolgate/servers/lane.py",
        "if self._in_lane or self._held:",
        "if self._in_lane:",
        f"{OUTBOX}::test_an_answer_held_while_the_server_stops_is_sent",
    ),
    Mutation(
        "outbox: idle while an answer is held",
        "src/toolgate/servers/lane.py",
        "busy = self._arriving or self._held or (",
        "busy = self._arriving or (",
        f"{OUTBOX}::test_a_connection_is_not_idle_while_its_answer_is_held",
    ),
    Mutation(
        "stdio: answers leave before their records",
        "src/toolgate/servers/stdio.py",
        "                self._road.ledger.flush()",
        "                pass",
        "tests/servers/test_stdio.py::test_a_burst_is_answered_after_all_its_records",
    ),
    Mutation(
        "ledger: an effect waits with the reads",
        "src/toolgate/ledger/local.py",
        " and entry.caller is not None and not entry.durable",
        "",
        GATHER,
    ),
    Mutation(
        "ledger: what waits is said to be on disk",
        "src/toolgate/ledger/local.py",
        "self._size - len(self._gathered) - 1",
        "self._size - 1",
        GATHER,
    ),
    Mutation(
        "ledger: a checkpoint signs what is not written",
        "src/toolgate/ledger/local.py",
        "        self._write_gathered()\n        self._tree",
        "        self._tree",
        GATHER,
    ),
    Mutation(
        "ledger: what is lost stays in the chain",
        "src/toolgate/ledger/local.py",
        "                self._forget()",
        "                self._gathered = []",
        GATHER,
    ),
    Mutation(
        "json: duplicate keys",
        "src/toolgate/model/strictjson.py",
        "catch_duplicate_keys=True",
        "catch_duplicate_keys=False",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: anything reads like our own writing",
        "src/toolgate/model/strictjson.py",
        "orjson.dumps(value, option=_PLAIN) == data and ",
        "",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: NUL in our own writing",
        "src/toolgate/model/strictjson.py",
        "not _may_hold_nul(data) and ",
        "",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: depth of our own writing",
        "src/toolgate/model/strictjson.py",
        " and _opened(data) <= MAX_DEPTH:",
        ":",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: big integers",
        "src/toolgate/model/strictjson.py",
        "if not -MAX_SAFE_INTEGER <= one <= MAX_SAFE_INTEGER:",
        "if False:",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: infinities",
        "src/toolgate/model/strictjson.py",
        "if not isfinite(one):",
        "if False:",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: NUL",
        "src/toolgate/model/strictjson.py",
        'if "\\0" in one:',
        "if False:",
        "tests/gate/test_strictjson.py",
    ),
    Mutation(
        "json: depth",
        "src/toolgate/model/strictjson.py",
        "for _ in range(MAX_DEPTH + 1):",
        "while True:",
        "tests/gate/test_strictjson.py",
    ),
)


def survives(mutation: Mutation, tree: Path) -> bool:
    """Does the named test still pass without the check?"""
    path = tree / mutation.file
    good = path.read_text()
    if good.count(mutation.line) != 1:
        raise SystemExit(f"{mutation.name}: its line stands {good.count(mutation.line)} times in {mutation.file}")
    path.write_text(good.replace(mutation.line, mutation.mutant))
    try:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--timeout",
            "20",
            "-p",
            "no:cacheprovider",
            mutation.test,
        ]
        env = os.environ | {
            "PYTHONPATH": str(tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_DATABASE": "none",
        }
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=120, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{mutation.name}: the test did not run\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.returncode == 0
    finally:
        path.write_text(good)


def main() -> int:
    words = sys.argv[1:]
    chosen = [one for one in MUTATIONS if not words or any(word in one.name for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            ROOT,
            tree,
            ignore=shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__", "artifacts", "node_modules"),
        )
        alive = []
        for one in chosen:
            lives = survives(one, tree)
            print(f"{'SURVIVED' if lives else 'killed  '}  {one.name}", flush=True)
            if lives:
                alive.append(one.name)
    print(f"{len(chosen) - len(alive)} killed, {len(alive)} survived")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
