"""Both stores in DynamoDB tables (ADR-0025).

What is asked for together stands in one partition, so an event is written four times, in one transaction:

| partition | sort key | for |
|---|---|---|
| `event#ID` | `event` | is it there already; was it reviewed |
| `org#ORG` | `RULE#TIME#ID` | an organisation's rates, patterns and rules |
| `rule#RULE` | `TIME#ID` | rates over all organisations |
| `repository#NAME` | `event#ID`, `suppression#FINGERPRINT`, `baseline`, `part#...` | all that an analysis asks for |
| `nonce#DIGEST` | `nonce` | single use |
| `blocked#HOUR#NAME` | the report | the circuit breaker |
| `consent#ORG` | `record#RESOURCE`, `event#TIME#ID` | consent, and how it came about |

`expires` (seconds) is for the table's own time to live, where the operator turned it on; nothing here relies on it.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, convert
from msgspec.structs import asdict

from toolgate.errors import StoreUnavailable
from toolgate.model import strictjson
from toolgate.model.powers import Delete, Item, Put, Table
from toolgate.packs.governance.stores.consents import Record, happening
from toolgate.packs.governance.stores.reviews import (
    BLOCKS_KEPT_HOURS,
    HOUR_MS,
    K_ANONYMITY,
    MAX_BASELINE_BYTES,
    NONCE_KEPT_MS,
    Pattern,
    ReviewEvent,
    Suppression,
    nonce_digest,
)
from toolgate.packs.governance.stores.statistics import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LAST: Final = "\U0010ffff"
"""Sorts behind everything that a key holds."""
MAX_KEY_BYTES: Final = 200
"""Of a name within a key; a longer one stands there as its digest. DynamoDB allows 1024 for a sort key."""
PART_BYTES: Final = 350_000
"""Of a baseline, compressed, in one item. DynamoDB allows 400 KB with keys and names."""
AT_ONCE: Final = 25
"""Events in one transaction, which DynamoDB limits to 100 writes."""
RACES: Final = 10
"""Attempts at a consent that somebody else changes at the same moment."""

Kept = TypeVar("Kept", bound=Struct)


class TableFalsePositives:
    """See `reviews.FalsePositives`."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def record(self, event: ReviewEvent, suppression: Suppression | None = None) -> bool:
        event.check()
        copies = _copies(event)
        with_it = [] if suppression is None else [_suppression(suppression)]
        if self._table.write(*copies, *with_it):
            return True
        if with_it:
            self._table.write(*with_it)
        return False

    def record_all(self, events: Sequence[ReviewEvent]) -> int:
        for event in events:
            event.check()
        fresh = list({event.event_id: event for event in events}.values())
        portions = [fresh[at : at + AT_ONCE] for at in range(0, len(fresh), AT_ONCE)]
        return sum(self._record_portion(portion) for portion in portions)

    def _record_portion(self, portion: Sequence[ReviewEvent]) -> int:
        """One that is there already cancels the whole portion; then each is tried alone."""
        if self._table.write(*(copy for event in portion for copy in _copies(event))):
            return len(portion)
        return sum(self.record(event) for event in portion)

    def events(self, *, org_id: str | None = None, rule_id: str | None = None, limit: int = 1000) -> list[ReviewEvent]:
        if org_id is not None:
            found = self._of_org(org_id, rule_id)
        elif rule_id is not None:
            found = self._table.query(_key("rule", rule_id))
        else:
            found = self._table.scan("event#")
        ordered = sorted(_all(found, ReviewEvent), key=lambda event: (-event.occurred_at, event.event_id))
        return ordered[:limit]

    def reviewed_among(self, event_ids: Sequence[str]) -> int:
        found = (self._table.get(_key("event", event_id), "event") for event_id in sorted(set(event_ids)))
        return sum(item is not None and item["verdict"] != "pending" for item in found)

    def counts(self, org_id: str, rule_id: str, since: int, until: int) -> Counts:
        return _counted(self._of_org(org_id, rule_id, since, until))

    def same_until(self, org_id: str, rule_id: str, since: int, until: int) -> int:  # noqa: ARG002
        """A table cannot tell that nobody has changed it, so no count is kept for later."""
        return until

    def patterns(self, org_id: str, rule_id: str, since: int, limit: int) -> list[Pattern]:
        times: dict[str, list[int]] = defaultdict(list)
        for event in _all(self._of_org(org_id, rule_id, since), ReviewEvent):
            if event.verdict == "false_positive":
                times[event.fingerprint].append(event.occurred_at)
        found = [Pattern(mark, len(seen), min(seen), max(seen)) for mark, seen in times.items()]
        return sorted(found, key=lambda pattern: (-pattern.frequency, pattern.fingerprint))[:limit]

    def across_organisations(self, rule_id: str, since: int) -> Counts | None:
        found = self._table.query(_key("rule", rule_id), _time(since), LAST)
        reviewed = [item for item in found if item["verdict"] != "pending"]
        if len({item["org_id"] for item in reviewed}) < K_ANONYMITY:
            return None
        return _counted(reviewed)

    def counts_here(self, repository: str) -> dict[str, Counts]:
        by_rule: dict[str, list[Item]] = defaultdict(list)
        for item in self._table.query(_key("repository", repository), "event#", "event#" + LAST):
            if item["verdict"] != "pending":
                by_rule[str(item["rule_id"])].append(item)
        return {rule: _counted(items) for rule, items in by_rule.items()}

    def rules_of(self, org_id: str) -> list[str]:
        """From one rule's first event to the next rule's: the events between them are not read."""
        rules: list[str] = []
        while item := next(iter(self._table.query(_key("org", org_id), f"{rules[-1]}#{LAST}" if rules else " ")), None):
            rules.append(str(item["rule_id"]))
        return rules

    def suppress(self, suppression: Suppression) -> None:
        self._table.write(_suppression(suppression))

    def suppressions(self, repository: str) -> list[Suppression]:
        found = self._table.query(_key("repository", repository), "suppression#", "suppression#" + LAST)
        return _all(found, Suppression)

    def all_suppressions(self, limit: int) -> list[Suppression]:
        found = _all(self._table.scan("repository#", "suppression#"), Suppression)
        return sorted(found, key=lambda hidden: (hidden.repository, hidden.fingerprint))[:limit]

    def use_nonce(self, nonce: str, now: int) -> bool:
        item: Item = {"seen_at": now, "expires": (now + NONCE_KEPT_MS) // 1000 + 1}
        forgotten = ("seen_at", now - NONCE_KEPT_MS)
        return self._table.write(
            Put(_key("nonce", nonce_digest(nonce)), "nonce", item, absent=True, unless_below=forgotten)
        )

    def blocked_this_hour(self, repository: str, now: int) -> int:
        return self._table.count(_blocked(repository, now))

    def count_block(self, repository: str, report: str, now: int) -> None:
        expires = (now // HOUR_MS + BLOCKS_KEPT_HOURS + 1) * HOUR_MS // 1000
        self._table.write(Put(_blocked(repository, now), _name(report), {"expires": expires}))

    def write_baseline(self, repository: str, baseline: Mapping[str, Any], now: int) -> None:
        """The parts first, then the item that names them: a reader sees the old baseline or the new one."""
        place = _key("repository", repository)
        data = zlib.compress(strictjson.dumps_sorted(dict(baseline)))
        before, made = self._table.get(place, "baseline"), f"{now}-{sha256(data).hexdigest()[:16]}"
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        for number, part in enumerate(parts):
            self._table.write(Put(place, _part(made, number), {"data": part}))
        self._table.write(Put(place, "baseline", {"created_at": now, "made": made, "parts": len(parts)}))
        if before is not None and before["made"] != made:
            for number in range(int(before["parts"])):
                self._table.write(Delete(place, _part(str(before["made"]), number)))

    def read_baseline(self, repository: str) -> tuple[int, dict[str, Any]] | None:
        place = _key("repository", repository)
        for _ in range(RACES):
            head = self._table.get(place, "baseline")
            if head is None:
                return None
            parts = [self._table.get(place, _part(str(head["made"]), number)) for number in range(int(head["parts"]))]
            if all(part is not None for part in parts):  # else it was replaced while we read it
                data = b"".join(bytes(part["data"]) for part in parts if part is not None)  # type: ignore[arg-type]
                return int(head["created_at"]), _unpacked(data)
        raise StoreUnavailable("the baseline is replaced all the time, or a part of it is gone")

    def _of_org(
        self, org_id: str, rule_id: str | None = None, since: int = 0, until: int | None = None
    ) -> Iterable[Item]:
        """From `since` to before `until`."""
        if rule_id is None:
            return self._table.query(_key("org", org_id))
        # An event at `until` itself has more behind its time than the bound has, so it sorts after it.
        last = f"{rule_id}#{LAST}" if until is None else f"{rule_id}#{_time(until)}"
        return self._table.query(_key("org", org_id), f"{rule_id}#{_time(since)}", last)


class TableConsents:
    """See `consents.Consents`."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def records(self, org_id: str) -> list[Record]:
        return _all(self._items(org_id).values(), Record)

    def grant(self, records: Sequence[Record], actor: str) -> None:
        for _ in range(RACES):
            writes: list[Put] = []
            for record in records:
                before = self._items(record.org_id).get(record.resource)
                writes.append(_changed(record, before))
                writes.append(_remembered(record, "renewed" if before else "granted", actor, record.granted_at))
            if self._table.write(*writes):
                return
        raise _too_busy()

    def revoke(self, org_id: str, resource: str, actor: str, now: int) -> bool:
        for _ in range(RACES):
            before = self._items(org_id).get(resource)
            if before is None:
                return False
            if "revoked_at" in before:
                return True
            record = _from_item(before | {"revoked_at": now}, Record)
            if self._table.write(_changed(record, before), _remembered(record, "revoked", actor, now)):
                return True
        raise _too_busy()

    def _items(self, org_id: str) -> dict[str, Item]:
        found = self._table.query(_key("consent", org_id), "record#", "record#" + LAST)
        return {str(item["resource"]): item for item in found}


def _too_busy() -> StoreUnavailable:
    return StoreUnavailable("the consent is changed by too many at once. Try again")


def _changed(record: Record, before: Item | None) -> Put:
    """The record in place of the one that was read, if that is still there."""
    revision = int(before["revision"]) if before else 0
    item = _item(record) | {"revision": revision + 1}
    place = _key("consent", record.org_id), f"record#{_name(record.resource)}"
    return Put(*place, item, equal=("revision", revision)) if before else Put(*place, item, absent=True)


def _remembered(record: Record, event: Any, actor: str, now: int) -> Put:
    consent_event = happening(record, event, actor, now)
    return Put(_key("consent", record.org_id), f"event#{_time(now)}#{consent_event.event_id}", _item(consent_event))


def _copies(event: ReviewEvent) -> list[Put]:
    item, identity, at = _item(event), event.event_id, _time(event.occurred_at)
    return [
        Put(_key("event", identity), "event", item, absent=True),
        Put(_key("org", event.org_id), f"{event.rule_id}#{at}#{identity}", item),
        Put(_key("rule", event.rule_id), f"{at}#{identity}", item),
        Put(_key("repository", event.repository), f"event#{identity}", item),
    ]


def _suppression(suppression: Suppression) -> Put:
    return Put(_key("repository", suppression.repository), f"suppression#{suppression.fingerprint}", _item(suppression))


def _blocked(repository: str, now: int) -> str:
    return f"blocked#{now // HOUR_MS}#{_name(repository)}"


def _part(made: str, number: int) -> str:
    return f"part#{made}#{number:06d}"


def _unpacked(data: bytes) -> dict[str, Any]:
    inflater = zlib.decompressobj()
    text = inflater.decompress(data, MAX_BASELINE_BYTES)
    if inflater.unconsumed_tail:
        raise StoreUnavailable("the baseline is larger than a baseline can be")
    whole: dict[str, Any] = strictjson.loads(text, max_bytes=MAX_BASELINE_BYTES, max_values=None)
    return whole


def _counted(items: Iterable[Item]) -> Counts:
    verdicts = Counter(item["verdict"] for item in items)
    return Counts(verdicts.total(), verdicts["false_positive"], verdicts["true_positive"])


def _all(items: Iterable[Item], kind: type[Kept]) -> list[Kept]:
    return [_from_item(item, kind) for item in items]


def _from_item(item: Mapping[str, Any], kind: type[Kept]) -> Kept:
    return convert(dict.fromkeys(kind.__struct_fields__) | dict(item), kind)


def _item(kept: Struct) -> Item:
    return {name: value for name, value in asdict(kept).items() if value is not None}


def _key(family: str, name: str) -> str:
    return f"{family}#{_name(name)}"


def _name(text: str) -> str:
    return text if len(text.encode()) <= MAX_KEY_BYTES else sha256(text.encode()).hexdigest()


def _time(milliseconds: int) -> str:
    """As text that sorts like the number; nothing happened before 1970."""
    return f"{max(0, milliseconds):015d}"
