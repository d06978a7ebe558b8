"""Stores in DynamoDB tables (ADR-0025): items under two string keys, `pk` and `sk`.

The table is the operator's: it is never created, altered or emptied here. Several stores may share one, since the name of
the store begins every partition key.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore import exceptions
from botocore.config import Config
from botocore.session import Session

from toolgate.errors import StoreUnavailable
from toolgate.model.powers import Delete, Item, Put
from toolgate.powers.stores import CONNECT_TIMEOUT_S, ReadOnlyStoreError, StoreTooNew, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolgate.powers.stores import TablePlace

Out = TypeVar("Out")

READ_TIMEOUT_S: Final = 2.5
"""DynamoDB answers within milliseconds; one that does not within this is not there."""
ATTEMPTS: Final = 2
"""Of one request. Two that hang, and the pause between them, stay below WORK_TIMEOUT_S."""
WORK_TIMEOUT_S: Final = 8.0
"""All requests of one piece of work: no new one is begun later. Below `stores.RUN_TIMEOUT_S`."""
CONFLICTS: Final = 6
"""Attempts of a write that meets another's transaction on the same item; the pauses between them add up to a second."""
SCHEMA: Final = ("schema", "version")
"""The keys of the item that says which version wrote the table."""

_REFUSED: Final = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "UnrecognizedClientException",
)
_THROTTLED: Final = (
    "LimitExceededException",
    "ProvisionedThroughputExceeded",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingError",
    "ThrottlingException",
)
_CONFLICT: Final = ("TransactionConflict", "TransactionConflictException", "TransactionInProgressException")
_CONDITION: Final = ("ConditionalCheckFailed", "ConditionalCheckFailedException")
_NO_CREDENTIALS: Final = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
)


class TableEngine:
    """One store's table."""

    def __init__(self, name: str, place: TablePlace) -> None:
        self._name = name
        self._place = place
        self._session = Session()
        self._client: Any = None
        self._checked = False
        self._opening = threading.Lock()

    def transact(self, work: Callable[[ItemTable], Out], *, writing: bool) -> Out:
        """Raises: StoreUnavailable, ReadOnlyStoreError; and whatever `work` raises."""
        with self._in_our_words():
            table = self._table(writing=writing)
            self._check_version(table, writing=writing)
            return work(table)

    def ask(self) -> None:
        """Reads one item: the table is there, has our keys, and lets us. Raises: StoreUnavailable."""
        with self._in_our_words():
            self._found_version(self._table(writing=False))

    def mark(self) -> None:
        """A table does not tell whether it has changed: to find out is to read it."""

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _table(self, *, writing: bool) -> ItemTable:
        due = time.monotonic() + WORK_TIMEOUT_S
        return ItemTable(self._opened(), self._place.table, self._name, writing=writing, due=due)

    def _opened(self) -> Any:
        with self._opening:
            if self._client is None:
                config = Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                    max_pool_connections=2,  # the store's thread and the probe
                    user_agent_extra="toolgate",
                )
                self._client = self._session.create_client(
                    "dynamodb", region_name=self._place.region or None, config=config
                )
            return self._client

    def _check_version(self, table: ItemTable, *, writing: bool) -> None:
        """Once for each process; the first that writes leaves the version behind."""
        if self._checked:
            return
        found = self._found_version(table)
        if writing and found < self._place.version:
            table.write(Put(*SCHEMA, {"version": self._place.version}))
        self._checked = writing or found > 0

    def _found_version(self, table: ItemTable) -> int:
        item = table.get(*SCHEMA)
        found = int(item["version"]) if item else 0
        if found > self._place.version:
            raise StoreTooNew(self._name, found, self._place.version)
        return found

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        """AWS's own texts hold account numbers and names of resources; the code is enough to look it up."""
        try:
            yield
        except _NO_CREDENTIALS as fault:
            self._client = None  # it would keep to what it found when it was made
            raise self._fault(
                "finds no AWS credentials. Set AWS_PROFILE, or keys, or give the machine a role"
            ) from fault
        except exceptions.NoRegionError as fault:
            raise self._fault("does not know its region. Set awsRegion or AWS_REGION") from fault
        except exceptions.ClientError as fault:
            raise self._refused(fault) from fault
        except (exceptions.ConnectionError, exceptions.HTTPClientError) as fault:
            raise silent(self._name) from fault
        except exceptions.BotoCoreError as fault:
            raise self._fault(f"cannot work with this machine's AWS configuration ({type(fault).__name__})") from fault

    def _refused(self, fault: exceptions.ClientError) -> StoreUnavailable:
        codes, text = _codes(fault), fault.response.get("Error", {}).get("Message", "")
        if "ResourceNotFoundException" in codes:
            return self._fault("has no table of that name in its region. Create it, or correct the setting")
        if "ValidationException" in codes and "key" in text:
            return self._fault("has a table with other keys. It needs the strings pk and sk (docs: governance)")
        if codes & set(_REFUSED):
            return self._fault(f"is refused by AWS ({min(codes)}). Check the credentials and what they may do")
        if codes & set(_THROTTLED):
            return self._fault("is throttled by DynamoDB. Raise the table's capacity")
        if codes & set(_CONFLICT):
            return self._fault("is written to by too many at once. Try again")
        return self._fault(f"got the answer {', '.join(sorted(codes))}")

    def _fault(self, text: str) -> StoreUnavailable:
        return StoreUnavailable(f"store {self._name} {text}")


class ItemTable:
    """The table during one piece of work: see `model.powers.Table`."""

    def __init__(self, client: Any, table: str, store: str, *, writing: bool, due: float) -> None:
        self._client = client
        self._table = table
        self._store = store
        self._writing = writing
        self._due = due

    def get(self, pk: str, sk: str) -> Item | None:
        found = self._ask("get_item", Key=self._keys(pk, sk), ConsistentRead=True).get("Item")
        return None if found is None else _read(found)

    def query(self, pk: str, first: str = "", last: str = "", *, newest_first: bool = False) -> Iterator[Item]:
        condition, values = "pk = :pk", {":pk": {"S": self._partition(pk)}}
        if first or last:
            condition += " AND sk BETWEEN :first AND :last"
            values |= {":first": {"S": first or " "}, ":last": {"S": last or "\U0010ffff"}}
        yield from self._pages(
            "query",
            KeyConditionExpression=condition,
            ExpressionAttributeValues=values,
            ScanIndexForward=not newest_first,
        )

    def count(self, pk: str) -> int:
        values = {":pk": {"S": self._partition(pk)}}
        asked = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": values, "Select": "COUNT"}
        return sum(int(answer["Count"]) for answer in self._answers("query", **asked))

    def scan(self, pk_prefix: str, sk_prefix: str = "") -> Iterator[Item]:
        condition, values = "begins_with(pk, :pk)", {":pk": {"S": self._partition(pk_prefix)}}
        if sk_prefix:
            condition += " AND begins_with(sk, :sk)"
            values[":sk"] = {"S": sk_prefix}
        yield from self._pages("scan", FilterExpression=condition, ExpressionAttributeValues=values)

    def write(self, *writes: Put | Delete) -> bool:
        if not self._writing:
            raise ReadOnlyStoreError(self._store)
        for attempt in range(CONFLICTS):
            try:
                self._write(writes)
            except exceptions.ClientError as fault:
                codes = _codes(fault)
                if codes & set(_CONDITION):
                    return False
                if not codes & set(_CONFLICT) or attempt + 1 == CONFLICTS:
                    raise
                time.sleep(0.03 * 2**attempt)
            else:
                return True
        raise AssertionError("the last attempt raises or returns")

    def _write(self, writes: tuple[Put | Delete, ...]) -> None:
        if len(writes) == 1:
            (only,) = writes
            self._ask("put_item" if isinstance(only, Put) else "delete_item", **self._request(only))
            return
        items = [
            {"Put" if isinstance(write, Put) else "Delete": {"TableName": self._table, **self._request(write)}}
            for write in writes
        ]
        self._call("transact_write_items", TransactItems=items)

    def _request(self, write: Put | Delete) -> dict[str, Any]:
        if isinstance(write, Delete):
            return {"Key": self._keys(write.pk, write.sk)}
        request: dict[str, Any] = {"Item": self._keys(write.pk, write.sk) | _written(write.item)}
        if write.absent:
            request["ConditionExpression"] = "attribute_not_exists(pk)"
        compared = write.unless_below or write.equal
        if compared is not None:
            name, value = compared
            test = "#name < :value" if write.unless_below else "#name = :value"
            request["ConditionExpression"] = " OR ".join([*filter(None, [request.get("ConditionExpression")]), test])
            request["ExpressionAttributeNames"] = {"#name": name}
            request["ExpressionAttributeValues"] = {":value": {"N": str(value)}}
        return request

    def _pages(self, operation: str, **asked: Any) -> Iterator[Item]:
        for answer in self._answers(operation, **asked):
            yield from (_read(item) for item in answer["Items"])

    def _answers(self, operation: str, **more: Any) -> Iterator[Any]:
        asked = {"ConsistentRead": True, **more}
        answer = self._ask(operation, **asked)
        yield answer
        while "LastEvaluatedKey" in answer:
            answer = self._ask(operation, ExclusiveStartKey=answer["LastEvaluatedKey"], **asked)
            yield answer

    def _ask(self, operation: str, **asked: Any) -> Any:
        return self._call(operation, TableName=self._table, **asked)

    def _call(self, operation: str, **asked: Any) -> Any:
        if time.monotonic() > self._due:
            raise silent(self._store)
        return getattr(self._client, operation)(**asked)

    def _keys(self, pk: str, sk: str) -> dict[str, Any]:
        return {"pk": {"S": self._partition(pk)}, "sk": {"S": sk}}

    def _partition(self, pk: str) -> str:
        return f"{self._store}#{pk}"


def _codes(fault: exceptions.ClientError) -> set[str]:
    """Of the answer, or of each write of a transaction that was cancelled."""
    reasons = fault.response.get("CancellationReasons") or ()
    found = {reason.get("Code") for reason in reasons} - {None, "None"}
    return found or {fault.response.get("Error", {}).get("Code", "no code")}


def _written(item: Item) -> dict[str, Any]:
    kinds = {str: "S", bytes: "B", int: "N"}
    return {name: {kinds[type(value)]: str(value) if type(value) is int else value} for name, value in item.items()}


def _read(found: dict[str, Any]) -> Item:
    """Without its keys, and without attributes of kinds that we do not write."""
    item: Item = {}
    for name, held in found.items():
        ((kind, value),) = held.items()
        if name not in ("pk", "sk") and kind in ("S", "N", "B"):
            item[name] = int(value) if kind == "N" else value
    return item
