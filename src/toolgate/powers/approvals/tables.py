"""Requests, votes and grants in SQL: SQLite by default, PostgreSQL by `stores.approvals`.

What must happen once is one statement: a grant is spent by an UPDATE that finds it approved, and a vote takes the row's lock
before it counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.kit.conditions.approval import (
    MAX_WAITING,
    STORE,
    Answer,
    ApprovalClaim,
    ApprovalRequest,
    Person,
    VoteRefused,
    is_same_person,
)
from toolgate.kit.sql import sql
from toolgate.model.tool import Migration
from toolgate.powers.stores import MAX_BYTES, OpenStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sqlalchemy.engine import Connection

_SAME: Final = (
    "id",
    "binding",
    "caller",
    "label",
    "owner",
    "tool",
    "pin",
    "policy",
    "rule",
    "needed",
    "roles",
    "shown",
)
"""Fields of a request that are columns of the same name; its moments are kept in milliseconds."""
TAKEN_S: Final = 60
"""For a process to write down the expiries it took; then another does. One that is killed in between may leave two records."""
MOST_TAKEN: Final = 100
KEPT_S: Final = 30 * 86_400
"""Requests that ended stay for whoever asks what became of them; the log has them for good."""
MIGRATIONS: Final = (
    Migration(
        STORE,
        1,
        (
            """CREATE TABLE approvals (
                id TEXT PRIMARY KEY,
                binding TEXT NOT NULL,
                state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'refused', 'spent', 'expired')),
                caller TEXT NOT NULL,
                label TEXT NOT NULL,
                tool TEXT NOT NULL,
                pin TEXT NOT NULL,
                policy TEXT NOT NULL,
                rule TEXT NOT NULL,
                needed INTEGER NOT NULL,
                shown TEXT NOT NULL,
                created BIGINT NOT NULL,
                expires BIGINT NOT NULL
            )""",
            "CREATE UNIQUE INDEX approvals_open ON approvals (binding) WHERE state IN ('pending', 'approved')",
            "CREATE INDEX approvals_by_caller ON approvals (caller, state)",
            """CREATE TABLE approval_votes (
                approval TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
                approver TEXT NOT NULL,
                label TEXT NOT NULL,
                verdict TEXT NOT NULL CHECK (verdict IN ('approve', 'refuse')),
                reason TEXT NOT NULL,
                voted BIGINT NOT NULL,
                PRIMARY KEY (approval, approver)
            )""",
        ),
    ),
    # Of requests from before this column nobody knows whether the webhook was told; they count as told.
    Migration(STORE, 2, ("ALTER TABLE approvals ADD COLUMN told INTEGER NOT NULL DEFAULT 1",)),
    # `logged`, of expiries: when a process took it to write it down; -1: it is on record, as all from before this column are.
    Migration(
        STORE,
        3,
        (
            "ALTER TABLE approvals ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE approvals ADD COLUMN roles TEXT NOT NULL DEFAULT ''",
            "ALTER TABLE approvals ADD COLUMN logged BIGINT NOT NULL DEFAULT 0",
            "ALTER TABLE approval_votes ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
            "UPDATE approvals SET logged = -1 WHERE state = 'expired'",
            "CREATE INDEX approvals_by_end ON approvals (state, expires)",
        ),
    ),
)
_EXPIRE: Final = (
    "UPDATE approvals SET state = 'expired'"
    " WHERE binding = :binding AND state IN ('pending', 'approved') AND expires <= :now RETURNING id"
)
_OVERDUE: Final = (
    "UPDATE approvals SET state = 'expired' WHERE state IN ('pending', 'approved') AND id IN"
    " (SELECT id FROM approvals WHERE state IN ('pending', 'approved') AND expires <= :now ORDER BY expires LIMIT :most)"
)
_TAKE: Final = (
    "UPDATE approvals SET logged = :now WHERE logged BETWEEN 0 AND :before AND id IN"
    " (SELECT id FROM approvals WHERE state = 'expired' AND logged BETWEEN 0 AND :before ORDER BY expires LIMIT :most)"
    " RETURNING *"
)
_LOGGED: Final = "UPDATE approvals SET logged = -1 WHERE id = :id"
_SPEND: Final = (
    "UPDATE approvals SET state = 'spent'"
    " WHERE binding = :binding AND state = 'approved' AND expires > :now RETURNING id"
)
_OPEN: Final = "SELECT id FROM approvals WHERE binding = :binding AND state = 'pending'"
_REFUSED: Final = "SELECT id FROM approvals WHERE binding = :binding AND state = 'refused' AND expires > :now"
_WAITING: Final = "SELECT count(*) FROM approvals WHERE caller = :caller AND state = 'pending' AND expires > :now"
_KEEP: Final = (
    "INSERT INTO approvals"
    " (id, binding, state, caller, label, owner, tool, pin, policy, rule, needed, roles, shown, created, expires, told)"
    " VALUES (:id, :binding, 'pending', :caller, :label, :owner, :tool, :pin, :policy, :rule, :needed, :roles, :shown,"
    " :created, :expires, 0)"
    " ON CONFLICT DO NOTHING RETURNING id"
)
_LOCK: Final = (
    "UPDATE approvals SET needed = needed WHERE id = :id AND state = 'pending' AND expires > :now"
    " RETURNING caller, label, owner, needed, roles"
)
_VOTES: Final = (
    "SELECT approver, label, owner, verdict, reason, voted FROM approval_votes WHERE approval = :id ORDER BY voted"
)
_VOTE: Final = (
    "INSERT INTO approval_votes (approval, approver, label, owner, verdict, reason, voted)"
    " VALUES (:id, :approver, :label, :owner, :verdict, :reason, :now)"
)
_SETTLE: Final = "UPDATE approvals SET state = :state WHERE id = :id AND state = 'pending'"
_ALL: Final = "SELECT * FROM approvals WHERE state = :state OR :state = '' ORDER BY created DESC LIMIT 200"
_ONE: Final = "SELECT * FROM approvals WHERE id = :id"
_UNTOLD: Final = (
    "SELECT * FROM approvals WHERE told = 0 AND state = 'pending' AND expires > :now ORDER BY created LIMIT 100"
)
_TELL: Final = "UPDATE approvals SET told = 1 WHERE id = :id"
_FORGET: Final = "DELETE FROM approvals WHERE expires < :before AND (state IN ('refused', 'spent') OR logged = -1)"
"""An expiry that nobody has written down yet stays."""

_OWN: Final = frozenset({"told", "logged"})


class ApprovalTables:
    """The store of one home."""

    def __init__(self, place: str | Path, max_bytes: int = MAX_BYTES) -> None:
        """Raises: StartRefused: the URL is no store we can open. Nothing is opened yet."""
        self._store = OpenStore(STORE, place, MIGRATIONS, max_bytes)

    async def claim(self, request: ApprovalRequest, now: float) -> ApprovalClaim:
        """Raises: StoreUnavailable."""
        return await self._store.run(lambda connection: _claim(connection, request, now))

    async def vote(self, approval: str, approver: Person, verdict: Answer, reason: str, now: float) -> str:
        """The state after it. Raises: VoteRefused, StoreUnavailable."""
        return await self._store.run(lambda connection: _vote(connection, approval, approver, verdict, reason, now))

    async def all(self, state: str = "") -> list[dict[str, Any]]:
        """Newest first, of one state or of all. Raises: StoreUnavailable."""
        return await self._store.run(lambda connection: _told(connection.execute(sql(_ALL), {"state": state})))

    async def get(self, approval: str) -> dict[str, Any] | None:
        """With its votes. Raises: StoreUnavailable."""
        return await self._store.run(lambda connection: _with_votes(connection, approval))

    async def untold(self, now: float) -> list[ApprovalRequest]:
        """Those that wait for an answer and that no webhook has taken, the oldest first. Raises: StoreUnavailable."""
        return await self._store.run(
            lambda connection: [
                _request(dict(row)) for row in connection.execute(sql(_UNTOLD), {"now": _ms(now)}).mappings()
            ]
        )

    async def take_expired(self, now: float) -> list[ApprovalRequest]:
        """Those whose time is over, at most `MOST_TAKEN`, for this process to write down. Raises: StoreUnavailable."""
        return await self._store.run(lambda connection: _take_expired(connection, now))

    async def expiry_recorded(self, approval: str) -> None:
        """Raises: StoreUnavailable."""
        await self._store.run(lambda connection: connection.execute(sql(_LOGGED), {"id": approval}))

    async def told(self, approval: str) -> None:
        """Raises: StoreUnavailable."""
        await self._store.run(lambda connection: connection.execute(sql(_TELL), {"id": approval}))

    def close(self) -> None:
        self._store.close()


def _claim(connection: Connection, request: ApprovalRequest, now: float) -> ApprovalClaim:
    about = {"binding": request.binding, "now": _ms(now), "caller": request.caller}
    expired = tuple(row.id for row in connection.execute(sql(_EXPIRE), about))
    spent = connection.execute(sql(_SPEND), about).scalar()
    if spent is not None:
        return ApprovalClaim("spent", spent, expired)
    waiting = connection.execute(sql(_OPEN), about).scalar()
    if waiting is not None:
        return ApprovalClaim("pending", waiting, expired)
    refused = connection.execute(sql(_REFUSED), about).scalar()
    if refused is not None:
        return ApprovalClaim("refused", refused, expired)
    if connection.execute(sql(_WAITING), about).scalar_one() >= MAX_WAITING:
        return ApprovalClaim("too_many", "", expired)
    connection.execute(sql(_FORGET), {"before": _ms(now - KEPT_S)})
    made = connection.execute(sql(_KEEP), _columns(request)).scalar()
    if made is not None:
        return ApprovalClaim("new", made, expired)
    return ApprovalClaim(
        "pending", connection.execute(sql(_OPEN), about).scalar() or "", expired
    )  # another process was first


def _take_expired(connection: Connection, now: float) -> list[ApprovalRequest]:
    about = {"now": _ms(now), "before": _ms(now - TAKEN_S), "most": MOST_TAKEN}
    connection.execute(sql(_OVERDUE), about)
    return [_request(dict(row)) for row in connection.execute(sql(_TAKE), about).mappings()]


def _columns(request: ApprovalRequest) -> dict[str, Any]:
    found = {name: getattr(request, name) for name in _SAME}
    return {**found, "created": _ms(request.created), "expires": _ms(request.expires)}


def _request(row: Mapping[str, Any]) -> ApprovalRequest:
    found = {name: row[name] for name in _SAME}
    return ApprovalRequest(**found, created=row["created"] / 1000, expires=row["expires"] / 1000)


def _vote(connection: Connection, approval: str, approver: Person, verdict: str, reason: str, now: float) -> str:
    row = connection.execute(sql(_LOCK), {"id": approval, "now": _ms(now)}).one_or_none()
    if row is None:
        raise VoteRefused("not_waiting", "There is no such request that waits for an answer.")
    if row.roles and approver.role not in row.roles.split(","):
        raise VoteRefused("other_role", f"The rule wants an answer of another role: {row.roles}.")
    if is_same_person(Person(row.caller, row.label, row.owner), approver):
        raise VoteRefused("own_request", "Whoever asks does not answer: this is a key of the same person.")
    votes = list(connection.execute(sql(_VOTES), {"id": approval}))
    if any(is_same_person(Person(vote.approver, vote.label, vote.owner), approver) for vote in votes):
        raise VoteRefused("answered_already", "This person has answered already.")
    connection.execute(
        sql(_VOTE),
        {
            "id": approval,
            "approver": approver.id,
            "label": approver.label,
            "owner": approver.owner,
            "verdict": verdict,
            "reason": reason,
            "now": _ms(now),
        },
    )
    state = "refused" if verdict == "refuse" else "approved" if len(votes) + 1 >= row.needed else "pending"
    connection.execute(sql(_SETTLE), {"id": approval, "state": state})
    return state


def _with_votes(connection: Connection, approval: str) -> dict[str, Any] | None:
    found = _told(connection.execute(sql(_ONE), {"id": approval}))
    return found[0] | {"votes": _told(connection.execute(sql(_VOTES), {"id": approval}))} if found else None


def _told(rows: Any) -> list[dict[str, Any]]:
    """All but what is of the webhook and the log alone."""
    return [{name: value for name, value in row.items() if name not in _OWN} for row in rows.mappings()]


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
