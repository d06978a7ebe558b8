"""DynamoDB as a store: what its table keeps, and every way in which it may fail, against a real server process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import toolgate.powers.dynamodb
from tests.powers.sql.dynamodb import KEYS, REGION, DynamoDb, shared_dynamodb
from tests.support import let_stores_wait
from tests.waiting import until
from toolgate.errors import StartRefused, StoreUnavailable
from toolgate.model.powers import Delete, Put, Table
from toolgate.model.tool import Migration
from toolgate.packs.governance.stores.consents import POLICY_VERSION, Record
from toolgate.packs.governance.stores.table import TableConsents, TableFalsePositives
from toolgate.powers.stores import OpenStores, Place, ReadOnlyStoreError, StoreTooNew, TablePlace, environment_of

pytestmark = pytest.mark.guard
NAMES = ("false_positives", "consent")
MIGRATIONS = [Migration(name, 1, [f"CREATE TABLE {name}_t (n BIGINT)"]) for name in NAMES]
NOW = 1_763_244_000_000


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> DynamoDb:
    server = shared_dynamodb()
    let_stores_wait(monkeypatch)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def open_stores(tmp_path: Path) -> Iterator[Callable[..., OpenStores]]:
    opened: list[OpenStores] = []

    def open_(place: Place, binding: tuple[str, ...] = NAMES) -> OpenStores:
        opened.append(OpenStores(dict.fromkeys(NAMES, place), tmp_path, MIGRATIONS, binding))
        return opened[-1]

    yield open_
    for stores in opened:
        stores.close()


def on_table(stores: OpenStores, work: Callable[[Table], Any], name: str = "false_positives") -> Any:
    return asyncio.run(stores.get(name).run_on_table(work))


def fault_of(stores: OpenStores, name: str = "false_positives") -> str:
    with pytest.raises(StoreUnavailable) as fault:
        on_table(stores, lambda table: table.get("a", "b"), name)
    return str(fault.value)


Open = Callable[..., OpenStores]


def test_an_item_is_read_back_in_its_own_store_only(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    item = {"text": "é", "n": -7, "data": b"\0\xff"}
    assert on_table(stores, lambda table: table.write(Put("a", "1", item))) is True
    assert on_table(stores, lambda table: table.get("a", "1")) == item
    assert on_table(stores, lambda table: table.get("a", "1"), "consent") is None
    assert on_table(stores, lambda table: table.write(Delete("a", "1"))) is True
    assert on_table(stores, lambda table: table.get("a", "1")) is None


def test_a_partition_is_read_in_order_within_bounds_and_counted(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    on_table(stores, lambda table: table.write(*(Put("a", f"k{n}", {"n": n}) for n in (3, 1, 2)), Put("b", "k0", {})))
    numbers = lambda *bounds, **more: on_table(  # noqa: E731
        stores, lambda table: [item["n"] for item in table.query("a", *bounds, **more)]
    )
    assert (numbers(), numbers(newest_first=True)) == ([1, 2, 3], [3, 2, 1])
    assert (numbers("k2"), numbers("", "k2"), numbers("k2", "k2")) == ([2, 3], [1, 2], [2])
    assert on_table(stores, lambda table: table.count("a")) == 3
    assert len(on_table(stores, lambda table: list(table.scan("a", "k")))) == 3


def test_a_partition_larger_than_one_answer_is_read_whole(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    for n in range(4):
        on_table(stores, lambda table, n=n: table.write(Put("a", f"k{n}", {"data": bytes(380_000)})))
    found = on_table(stores, lambda table: (len(list(table.query("a"))), table.count("a"), len(list(table.scan("a")))))
    assert found == (4, 4, 4)


def test_a_condition_that_does_not_hold_writes_nothing(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())

    def write(*writes: Put | Delete) -> bool:
        return bool(on_table(stores, lambda table: table.write(*writes)))

    assert [write(Put("a", "1", {"n": n}, absent=True)) for n in (1, 2)] == [True, False]
    assert [write(Put("a", "1", {"n": 3}, equal=("n", n))) for n in (2, 1)] == [False, True]
    assert [write(Put("a", "1", {"n": 9}, absent=True, unless_below=("n", n))) for n in (3, 4)] == [False, True]
    assert write(Put("b", "1", {}), Put("a", "1", {"n": 0}, absent=True), Delete("c", "1")) is False
    assert on_table(stores, lambda table: (table.get("a", "1"), table.get("b", "1"))) == ({"n": 9}, None)


def test_the_reading_handle_reads_and_cannot_write(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    reading = stores.reading.get("consent")
    assert asyncio.run(reading.run_on_table(lambda table: table.get("a", "1"))) is None
    with pytest.raises(ReadOnlyStoreError):
        asyncio.run(reading.run_on_table(lambda table: table.write(Put("a", "1", {}))))
    assert on_table(stores, lambda table: table.get("a", "1"), "consent") is None


def test_a_table_is_not_asked_in_sql_nor_sql_as_a_table(aws: DynamoDb, open_stores: Open, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="in a table"):
        asyncio.run(open_stores(aws.new_place()).get("consent").run(lambda connection: None))
    sqlite = OpenStores({}, tmp_path, MIGRATIONS)
    with pytest.raises(TypeError, match="in SQL"):
        asyncio.run(sqlite.get("consent").run_on_table(lambda table: None))


def test_a_table_that_a_newer_toolgate_wrote_is_refused_by_name(aws: DynamoDb, open_stores: Open) -> None:
    table = aws.new_table()
    on_table(open_stores(TablePlace(table, REGION, 2)), lambda items: items.get("a", "1"))
    older = open_stores(TablePlace(table, REGION, 1))
    with pytest.raises(StoreTooNew, match=r"store false_positives has schema version 2, this Toolgate knows 1"):
        on_table(older, lambda items: items.get("a", "1"))
    with pytest.raises(StartRefused, match="store false_positives"):
        older.start()


# What goes wrong


def test_a_missing_table_is_named_as_such_and_makes_nothing_cloud(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(TablePlace("not-there", REGION, 1))
    text = "has no table of that name in its region. Create it, or correct the setting"
    assert fault_of(stores) == f"store false_positives {text}"
    stores.start()
    assert environment_of(stores) == ("local", tuple(f"store {name} {text}" for name in NAMES))
    assert sorted(stores.silent()) == sorted(f"store {name} {text}" for name in NAMES)


def test_a_table_with_other_keys_is_named_as_such(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(TablePlace(aws.new_table(id="HASH"), REGION, 1))
    assert "has a table with other keys. It needs the strings pk and sk" in fault_of(stores)


def test_missing_credentials_are_named_and_found_again_when_they_come(
    aws: DynamoDb, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = aws.new_place()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    stores = open_stores(place)
    assert "store false_positives finds no AWS credentials. Set AWS_PROFILE, or keys," in fault_of(stores)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    assert "finds no AWS credentials" in fault_of(stores), "half a pair"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    assert on_table(stores, lambda table: table.get("a", "1")) is None


def test_a_missing_region_is_named(aws: DynamoDb, open_stores: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    stores = open_stores(TablePlace("fp-table", "", 1))
    assert fault_of(stores) == "store false_positives does not know its region. Set awsRegion or AWS_REGION"


def test_a_profile_that_does_not_exist_is_a_matter_of_credentials(
    aws: DynamoDb, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = aws.new_place()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "finds no AWS credentials" in fault_of(open_stores(place))


def test_nobody_at_the_endpoint_is_silence_without_an_address(
    open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (KEYS | {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"}).items():
        monkeypatch.setenv(name, value)
    assert fault_of(open_stores(TablePlace("fp-table", REGION, 1))) == "store false_positives does not answer"


def test_without_the_extra_the_fix_is_said(open_stores: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "toolgate.powers.dynamodb")
    monkeypatch.setitem(sys.modules, "botocore", None)
    told = fault_of(open_stores(TablePlace("fp-table", REGION, 1)))
    assert told == "store false_positives needs DynamoDB support: pip install 'toolgate[dynamodb]'"


class Endpoint:
    """An endpoint that answers as it is told; moto neither throttles, nor refuses anybody, nor hangs."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[str], tuple[int, dict[str, Any]] | None] = lambda operation: (200, {})
        self.released = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                operation = self.headers["x-amz-target"].rpartition(".")[2]
                endpoint.asked.append(operation)
                answer = endpoint.answer(operation)
                if answer is None:
                    endpoint.released.wait(60)
                    return
                status, body = answer
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/x-amz-json-1.0")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def refuse(self, code: str, **more: Any) -> None:
        self.answer = lambda operation: (400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", **more})

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    made = Endpoint()
    let_stores_wait(monkeypatch)
    for name, value in (KEYS | {"AWS_ENDPOINT_URL_DYNAMODB": made.url}).items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


PLACE = TablePlace("fp-table", REGION, 1)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ProvisionedThroughputExceededException", "is throttled by DynamoDB. Raise the table's capacity"),
        ("ThrottlingException", "is throttled by DynamoDB. Raise the table's capacity"),
        (
            "AccessDeniedException",
            "is refused by AWS (AccessDeniedException). Check the credentials and what they may do",
        ),
        (
            "ExpiredTokenException",
            "is refused by AWS (ExpiredTokenException). Check the credentials and what they may do",
        ),
        ("SomethingNew", "got the answer SomethingNew"),
    ],
)
def test_a_refusal_is_said_by_its_code_and_without_what_aws_tells(
    endpoint: Endpoint, open_stores: Open, code: str, told: str
) -> None:
    endpoint.refuse(code, message="arn:aws:iam::123456789012:user/geheim is not authorized")
    assert fault_of(open_stores(PLACE)) == f"store false_positives {told}"
    assert len(endpoint.asked) <= toolgate.powers.dynamodb.ATTEMPTS, "it is not retried without end"


def test_an_answer_that_is_no_json_is_no_answer(endpoint: Endpoint, open_stores: Open) -> None:
    endpoint.answer = lambda operation: (500, {"not": "aws"})
    assert fault_of(open_stores(PLACE)).startswith("store false_positives ")


def test_an_endpoint_that_hangs_is_left_within_its_bound(
    endpoint: Endpoint, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolgate.powers.dynamodb, "READ_TIMEOUT_S", 0.2)
    endpoint.answer = lambda operation: None
    assert fault_of(open_stores(PLACE)) == "store false_positives does not answer"
    assert len(endpoint.asked) == toolgate.powers.dynamodb.ATTEMPTS


def test_the_waits_for_one_request_fit_into_the_time_of_the_work() -> None:
    import toolgate.powers.stores

    module = toolgate.powers.dynamodb
    longest_pause_s = 1.0  # botocore's first, at most
    assert module.ATTEMPTS * module.READ_TIMEOUT_S + (module.ATTEMPTS - 1) * longest_pause_s < module.WORK_TIMEOUT_S
    assert module.WORK_TIMEOUT_S < toolgate.powers.stores.RUN_TIMEOUT_S


def test_work_of_many_requests_ends_when_its_time_is_up(
    endpoint: Endpoint, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolgate.powers.dynamodb, "WORK_TIMEOUT_S", 0.5)

    def endless(table: Table) -> None:
        while True:
            table.get("a", "1")

    with pytest.raises(StoreUnavailable, match="does not answer"):
        on_table(open_stores(PLACE), endless)


def cancelled(code: str) -> tuple[int, dict[str, Any]]:
    reasons = [{"Code": "None"}, {"Code": code, "Message": "x"}]
    return 400, {"__type": "TransactionCanceledException", "message": "x", "CancellationReasons": reasons}


def test_a_write_that_meets_another_transaction_is_tried_again(endpoint: Endpoint, open_stores: Open) -> None:
    waiting = [cancelled("TransactionConflict"), cancelled("TransactionConflict"), (200, {})]
    endpoint.answer = lambda operation: waiting.pop(0) if operation == "TransactWriteItems" else (200, {})
    assert on_table(open_stores(PLACE), lambda table: table.write(Put("a", "1", {}), Put("a", "2", {}))) is True
    assert endpoint.asked.count("TransactWriteItems") == 3


def test_a_write_that_always_meets_another_ends_with_a_clear_error(endpoint: Endpoint, open_stores: Open) -> None:
    endpoint.answer = lambda operation: (
        cancelled("TransactionConflict") if operation == "TransactWriteItems" else (200, {})
    )
    with pytest.raises(StoreUnavailable, match="is written to by too many at once"):
        on_table(open_stores(PLACE), lambda table: table.write(Put("a", "1", {}), Put("a", "2", {})))
    assert endpoint.asked.count("TransactWriteItems") == toolgate.powers.dynamodb.CONFLICTS


def test_a_transaction_that_is_throttled_is_no_condition_that_failed(endpoint: Endpoint, open_stores: Open) -> None:
    endpoint.answer = lambda operation: (
        cancelled("ProvisionedThroughputExceeded") if operation == "TransactWriteItems" else (200, {})
    )
    with pytest.raises(StoreUnavailable, match="is throttled"):
        on_table(open_stores(PLACE), lambda table: table.write(Put("a", "1", {}), Put("a", "2", {})))


# The stores of the governance tools, where a table differs from SQL


def test_of_many_servers_that_use_a_nonce_at_once_one_is_first(aws: DynamoDb, open_stores: Open) -> None:
    place = aws.new_place()
    servers = [open_stores(place) for _ in range(4)]

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(
            *(
                servers[n % 4]
                .get("false_positives")
                .run_on_table(lambda table: TableFalsePositives(table).use_nonce("once", NOW))
                for n in range(12)
            )
        )

    assert sorted(asyncio.run(all_at_once())) == [False] * 11 + [True]


def test_a_nonce_is_remembered_for_as_long_as_in_sql_and_no_longer(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    kept_ms = 2 * 86_400_000
    used = [
        on_table(stores, lambda table, at=at: TableFalsePositives(table).use_nonce("n", at))
        for at in (NOW, NOW + kept_ms, NOW + kept_ms + 1, NOW + kept_ms + 2)
    ]
    assert used == [True, False, True, False]


def test_a_baseline_larger_than_an_item_is_kept_and_its_predecessor_leaves_nothing(
    aws: DynamoDb, open_stores: Open
) -> None:
    stores = open_stores(aws.new_place())
    large = {f"file{n}": os.urandom(32).hex() for n in range(20_000)}
    for at, baseline in ((1, large), (2, {"one": "two"})):
        on_table(stores, lambda table, at=at, kept=baseline: TableFalsePositives(table).write_baseline("r", kept, at))
        assert on_table(stores, lambda table: TableFalsePositives(table).read_baseline("r")) == (at, baseline)
    assert len(on_table(stores, lambda table: list(table.scan("repository#", "part#")))) == 1


def test_a_baseline_with_a_part_missing_is_unavailable_and_not_half(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    on_table(
        stores, lambda table: table.write(Put("repository#r", "baseline", {"created_at": 1, "made": "x", "parts": 1}))
    )
    with pytest.raises(StoreUnavailable, match="baseline"):
        on_table(stores, lambda table: TableFalsePositives(table).read_baseline("r"))


def test_names_longer_than_a_key_are_kept(aws: DynamoDb, open_stores: Open) -> None:
    stores = open_stores(aws.new_place())
    name = "é" * 3000
    on_table(stores, lambda table: TableFalsePositives(table).count_block(name, name, NOW))
    assert on_table(stores, lambda table: TableFalsePositives(table).blocked_this_hour(name, NOW)) == 1


def test_grants_and_revocations_at_once_lose_no_event(aws: DynamoDb, open_stores: Open) -> None:
    place = aws.new_place()
    servers = [open_stores(place) for _ in range(3)]
    given = [Record("acme", resource, POLICY_VERSION, "ann", NOW, None, None) for resource in ("a", "b")]
    on_table(servers[0], lambda table: TableConsents(table).grant(given, "ann"), "consent")

    def change(n: int) -> Callable[[Table], Any]:
        if n % 2:
            return lambda table: TableConsents(table).revoke("acme", "a", "bob", NOW + n)
        again = [Record("acme", "a", POLICY_VERSION, "ann", NOW + n, None, None)]
        return lambda table: TableConsents(table).grant(again, "ann")

    async def all_at_once() -> None:
        await asyncio.gather(*(servers[n % 3].get("consent").run_on_table(change(n)) for n in range(6)))

    asyncio.run(all_at_once())
    history = on_table(servers[0], lambda table: list(table.scan("consent#", "event#")), "consent")
    record = on_table(servers[0], lambda table: table.get("consent#acme", "record#a"), "consent")
    of_a = [one["event"] for one in history if one["resource"] == "a"]
    assert record["revision"] == len(of_a), "each change is one revision and one event"
    assert of_a.count("granted") == 1
    assert of_a.count("renewed") == 3


# The environment


def eventually(stores: OpenStores, environment: str) -> None:
    until(lambda: environment_of(stores)[0] == environment or None, f"the environment is {environment}")


def test_stopping_dynamodb_turns_the_environment_local_and_starting_it_restores_cloud(
    aws: DynamoDb, open_stores: Open
) -> None:
    stores = open_stores(aws.new_place())
    stores.start()
    assert environment_of(stores) == ("cloud", ())
    aws.stop()
    try:
        eventually(stores, "local")
        assert "does not answer" in fault_of(stores, "consent")
    finally:
        aws.start()
    eventually(stores, "cloud")
    assert on_table(stores, lambda table: table.get("a", "1"), "consent") is None


def test_an_engine_that_hangs_is_noticed_and_nobody_queues_behind_it(
    aws: DynamoDb, open_stores: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolgate.powers.dynamodb, "READ_TIMEOUT_S", 2.5)
    stores = open_stores(aws.new_place())
    stores.start()
    on_table(stores, lambda table: table.get("a", "1"), "consent")
    with aws.hanging():
        eventually(stores, "local")
        until(lambda: "does not answer" in fault_of(stores, "consent") or None, "the store says so")
    eventually(stores, "cloud")


def test_one_table_of_two_is_local_and_says_why(aws: DynamoDb, tmp_path: Path) -> None:
    stores = OpenStores({"consent": aws.new_place()}, tmp_path, MIGRATIONS, NAMES)
    stores.start()
    assert environment_of(stores) == ("local", ("store false_positives is not on a shared engine",))
    stores.close()


def test_naming_a_table_loads_no_engine_before_its_first_use() -> None:
    program = (
        "import sys; from pathlib import Path; from toolgate.powers.stores import OpenStores, TablePlace;"
        "from toolgate.packs.governance.tables import MIGRATIONS;"
        "OpenStores({'consent': TablePlace('t', 'r', 1)}, Path('x'), MIGRATIONS);"
        "assert not {'botocore', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
