"""`toolgate fp`: reviews of findings, by the fingerprint that every report shows."""

from __future__ import annotations

import hmac
import os
import re
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import jsonschema_rs
import typer
from msgspec import Struct
from msgspec.structs import asdict

from toolgate.cli.options import AlwaysJson, Home, Json
from toolgate.cli.output import answer_json, say, write
from toolgate.config import load_settings, require_home
from toolgate.errors import SettingsError, ToolError
from toolgate.kit.reports.sarif import FINGERPRINT
from toolgate.kit.yamldoc import YamlFault
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.packs.governance.cli.analyze import analyzed, outside
from toolgate.packs.governance.cli.common import require_name
from toolgate.packs.governance.cli.git import is_ignored, origin_at
from toolgate.packs.governance.cli.local import person
from toolgate.packs.governance.cli.options import About, Root
from toolgate.packs.governance.cli.target import target_of
from toolgate.packs.governance.repository.config import CONFIG, read_config
from toolgate.packs.governance.repository.identity import origin_among
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES
from toolgate.packs.governance.repository.suppressions import (
    MAX_TEXT,
    RULE_FORM,
    SUPPRESSIONS,
    SuppressionEntry,
    appended,
    knows,
)
from toolgate.packs.governance.rules.catalogue import RULES
from toolgate.packs.governance.stores.reviews import DAY_MS, ReviewEvent, Suppression, Verdict
from toolgate.packs.governance.stores.statistics import Counts, recommendation, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from toolgate.packs.governance.cli.local import RepositoryCommand
    from toolgate.packs.governance.cli.target import CommandTarget
    from toolgate.packs.governance.stores.reviews import FalsePositives

Row = TypeVar("Row")

MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024
MAX_EVENTS: Final = 100_000
PORTION: Final = 100
"""Rows of an import that are handed to the store at once."""

fp = typer.Typer(no_args_is_help=True, help="False positives: mark findings, rates, list, export and import reviews.")


class Review(Struct, frozen=True):
    """What a reviewer said about one finding, and about which one."""

    fingerprint: str
    rule: str
    repository: str
    org: str
    reason: str
    reviewer: str
    ticket: str
    now: int
    until: int | None
    """None: it is a true positive, and nothing is suppressed."""

    @property
    def verdict(self) -> Verdict:
        return "true_positive" if self.until is None else "false_positive"

    def event(self) -> ReviewEvent:
        version = next((known.version for known in RULES if known.id == self.rule), 1)
        who = (self.reviewer, self.now, self.ticket, self.reason)
        return ReviewEvent(
            self.org, self.rule, version, self.fingerprint, self.repository, self.verdict, self.now, *who
        )

    def suppression(self) -> Suppression:
        assert self.until is not None
        who = (self.reason, self.reviewer, self.ticket)
        return Suppression(self.repository, self.fingerprint, self.rule, *who, self.now, self.until)


@fp.command()
def mark(
    fingerprint: Annotated[str, typer.Argument(help="The finding's fingerprint: 32 hex digits, in every report.")],
    *,
    reason: Annotated[str, typer.Option(help="Why it is a false (or true) positive.")],
    reviewer: Annotated[str, typer.Option(help="Who looked at it.")],
    ticket: Annotated[str, typer.Option(help="Where the decision is written down.")],
    rule: Annotated[str | None, typer.Option(help="Its rule, such as MD-002; must be the finding's.")] = None,
    days: Annotated[int, typer.Option(min=1, max=365, help="For how long it is suppressed.")] = 90,
    true_positive: Annotated[
        bool, typer.Option("--true-positive", help="Record that it is right; suppress nothing.")
    ] = False,
    in_repository: Annotated[
        bool, typer.Option("--in-repository", help=f"Suppress it in {SUPPRESSIONS}, for everybody and for CI.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Where the finding is: SARIF or JSON of analyze.")
    ] = None,
    context: About = None,
    org: Annotated[
        str | None, typer.Option("--org", help="Whose review it is; else the settings' organisation.")
    ] = None,
    root: Root = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Record a review; a false positive is suppressed until its time is over, in this repository only."""
    if not re.fullmatch(r"[0-9a-f]{32}", fingerprint):
        raise typer.BadParameter("FINGERPRINT must be 32 hex digits")
    for name, value in {"--reason": reason, "--reviewer": reviewer, "--ticket": ticket}.items():
        if not value.strip() or len(value) > MAX_TEXT:
            raise typer.BadParameter(f"{name} must not be empty or longer than {MAX_TEXT} characters")
    target = target_of((), root)
    with _store_or_none(home, target.root, needed=not in_repository) as who:
        found, repository = _reviewed(who, target, fingerprint, report, context)
        if rule is not None and rule != found:
            raise typer.BadParameter(f"the finding {fingerprint} is of {found}, not of {rule}")
        until = None if true_positive else who.now + days * DAY_MS
        owner = org or who.organisation
        review = Review(fingerprint, found, repository, owner, reason, reviewer, ticket, who.now, until)
        if in_repository and until is not None:
            _write_entry(target.root, review)
        if who.keeps:
            _record(who, review, suppress=until is not None and not in_repository)
    ends = None if until is None else rfc3339(until / 1000)
    if json:
        answer_json({"fingerprint": fingerprint, "rule": found, "verdict": review.verdict, "suppressedUntil": ends})
        return
    where = f" in {SUPPRESSIONS}" if in_repository else ""
    after = "" if ends is None else f", suppressed until {ends[:10]}{where}"
    say(f"{found} {fingerprint}: {review.verdict.replace('_', ' ')}{after}")
    for note in _notes(who, target, in_repository=in_repository):
        write(f"note: {note}\n", stderr=True)


def _notes(who: RepositoryCommand, target: CommandTarget, *, in_repository: bool) -> Iterator[str]:
    if in_repository and is_ignored(target.root, SUPPRESSIONS):
        yield f"Git ignores {SUPPRESSIONS}: take it out of .gitignore, or nobody else gets it"
    if not who.keeps:
        yield "there is no home, so the review is not counted in the rule's rate"


def _store_or_none(home: Path | None, root: Path, *, needed: bool) -> AbstractContextManager[RepositoryCommand]:
    """A home to keep the review in; without one only the repository's file can be written. Raises: SettingsError."""
    settings = load_settings(home, {}, os.environ)
    try:
        require_home(settings)
    except SettingsError:
        if needed:
            raise
        return person(home, root)
    return person(home, root, keep=True)


def _reviewed(
    who: RepositoryCommand, target: CommandTarget, fingerprint: str, report: Path | None, context: str | None
) -> tuple[str, str]:
    """The rule and the repository of the finding. Raises: typer.BadParameter: there is no such finding."""
    require_name(context)
    if report is not None:
        rules = _findings_of(report)
        repository = origin_among(context, _own_name(who), origin_at(target.root)).repository
    else:
        with outside(who, None, None, None) as rim:
            analysis = analyzed(who, target, {"mode": "pull_request", "context": context}, rim.outside)
        rules = {finding.fingerprint: finding.rule for finding in analysis.findings}
        repository = analysis.origin.repository
    if fingerprint not in rules:
        where = str(report) if report else str(target.root)
        raise typer.BadParameter(f"no finding in {where} has the fingerprint {fingerprint}")
    if not knows(rules[fingerprint]):
        raise typer.BadParameter(f"a finding of {rules[fingerprint]} cannot be suppressed: mend it")
    return rules[fingerprint], repository


def _own_name(who: RepositoryCommand) -> str | None:
    """What the repository calls itself. Raises: typer.BadParameter: its settings cannot be read."""
    try:
        data = who.files.read_bytes(CONFIG, max_bytes=MAX_FILE_BYTES) if who.files.is_file(CONFIG) else b""
        return read_config(data).repository
    except ToolError as fault:
        raise typer.BadParameter(f"{CONFIG} cannot be read: {fault.text}") from None
    except YamlFault as fault:
        raise typer.BadParameter(f"{CONFIG}:{fault.line}: {fault.text}") from None


def _findings_of(report: Path) -> dict[str, str]:
    """Fingerprint -> rule, of a report that `analyze` wrote."""
    try:
        document = strictjson.loads(report.read_bytes(), max_bytes=MAX_IMPORT_BYTES, max_values=None)
    except OSError as fault:
        raise typer.BadParameter(f"--report: {report} cannot be read: {fault.strerror}") from None
    except strictjson.JsonFault as fault:
        raise typer.BadParameter(f"--report: {report}: {fault}") from None
    try:
        if "runs" in document:
            results = [result for run in document["runs"] for result in run["results"]]
            marks = [(result.get("partialFingerprints", {}).get(FINGERPRINT), result["ruleId"]) for result in results]
            return {mark: rule for mark, rule in marks if mark}
        return {finding["fingerprint"]: finding["ruleId"] for finding in document["analysis"]["findings"]}
    except (KeyError, TypeError, AttributeError):
        raise typer.BadParameter(f"--report: {report} is neither SARIF nor JSON of toolgate analyze") from None


def _record(who: RepositoryCommand, review: Review, *, suppress: bool) -> None:
    kept_with_it = review.suppression() if suppress else None
    about = {
        "fingerprint": review.fingerprint,
        "rule": review.rule,
        "verdict": review.verdict,
        "repository": review.repository,
    }
    about |= {"reviewer": review.reviewer, "ticket": review.ticket, "org": review.org}
    with who.act("fp.mark", about | {"until": None if review.until is None else rfc3339(review.until / 1000)}):
        who.false_positives(lambda kept: kept.record(review.event(), kept_with_it))


def _write_entry(root: Path, review: Review) -> None:
    """Side effects: the repository's file of suppressions, made or added to."""
    assert review.until is not None
    path = root / SUPPRESSIONS
    if path.is_symlink() or path.parent.is_symlink():
        raise typer.BadParameter(f"{SUPPRESSIONS} is a link; it is not written through")
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    ends = datetime.fromtimestamp(review.until / 1000, UTC).date().isoformat()
    entry = SuppressionEntry(review.fingerprint, review.rule, review.reason, review.reviewer, review.ticket, ends, 1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(appended(before, entry), encoding="utf-8")


@fp.command()
def rate(
    rule: Annotated[str | None, typer.Argument(help="Only this rule.")] = None,
    *,
    org: Annotated[str | None, typer.Option("--org", help="Whose reviews; else the settings' organisation.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How far back.")] = 365,
    json: Json = False,
    home: Home = None,
) -> None:
    """How often each rule was wrong, with a 95 % interval, and what its owner should do."""
    with person(home) as who:
        asked, until = org or who.organisation, who.now + 1
        since = until - days * DAY_MS

        def work(kept: FalsePositives) -> dict[str, Counts]:
            rules = [rule] if rule else kept.rules_of(asked)
            return {rule_id: kept.counts(asked, rule_id, since, until) for rule_id in rules}

        counted = who.false_positives(work)
    if json:
        rows = [
            {"ruleId": rule_id, **counts.as_json(), "recommendation": recommendation(counts)}
            for rule_id, counts in counted.items()
        ]
        answer_json({"organisation": asked, "rules": rows})
        return
    for rule_id, counts in counted.items():
        say(f"{rule_id}: {told(counts)}. {recommendation(counts)}")
    if not counted:
        write(f"no reviews of {asked}\n", stderr=True)


@fp.command("list")
def list_events(
    *,
    rule: Annotated[str | None, typer.Option(help="Only this rule.")] = None,
    org: Annotated[str | None, typer.Option("--org", help="Only this organisation.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_EVENTS)] = 100,
    json: Json = False,
    home: Home = None,
) -> None:
    """Reviews, newest first."""
    with person(home) as who:
        found = who.false_positives(lambda kept: kept.events(org_id=org, rule_id=rule, limit=limit))
    if json:
        say(strictjson.dumps([_event_json(event) for event in found]).decode())
        return
    for event in found:
        say(
            f"{rfc3339(event.occurred_at / 1000)}  {event.rule_id}  {event.fingerprint}  {event.verdict}"
            f"  {event.reviewed_by or '-'}  {event.ticket or '-'}  {event.reason or ''}"
        )
    if not found:
        write("no reviews\n", stderr=True)


@fp.command()
def export(
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there.")] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace organisations, repositories, people, tickets and reasons.")
    ] = False,
    home: Home = None,
    json: AlwaysJson = False,  # noqa: ARG001 (taken, so that every command can be asked for it)
) -> None:
    """All reviews and suppressions as one JSON document, for `fp import` elsewhere."""
    with person(home) as who:
        found = who.false_positives(lambda store: store.events(limit=MAX_EVENTS))
        kept = who.false_positives(lambda store: store.all_suppressions(MAX_EVENTS))
    if anonymise:
        # A suppression without its repository and its reasons suppresses nothing.
        found, kept = _anonymous(found), []
    document = {
        "schemaVersion": 2,
        "events": [_event_json(event) for event in found],
        "suppressions": [_suppression_json(suppression) for suppression in kept],
    }
    text = strictjson.dumps_pretty(document).decode()
    if output is None:
        write(text)
    else:
        output.write_text(text, encoding="utf-8")
    write(f"{len(found)} reviews, {len(kept)} suppressions\n", stderr=True)


@fp.command("import")
def import_events(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `fp export` wrote.")],
    *,
    home: Home = None,
    json: Json = False,
) -> None:
    """Add reviews and suppressions of another store. Nothing is counted twice; one bad row and nothing is added.

    What was added when the store fails stays; then import the same file again.
    """
    data = file.read_bytes()
    rows, kept = _exported(file, data)
    with person(home, keep=True) as who:
        about = {"sha256": sha256(data).hexdigest(), "rows": len(rows), "suppressions": len(kept)}

        with who.act("fp.import", about) as found:
            added = found["added"] = _imported(who, rows, kept)
    if json:
        answer_json({"added": added, "known": len(rows) - added, "suppressions": len(kept)})
    else:
        say(f"{added} added, {len(rows) - added} were there already; {len(kept)} suppressions")


def _exported(file: Path, data: bytes) -> tuple[list[ReviewEvent], list[Suppression]]:
    """Raises: ToolError INVALID_INPUT: not an export, a rule that does not exist, a suppression that nobody reviewed."""
    try:
        document = strictjson.loads(data, max_bytes=MAX_IMPORT_BYTES, max_values=None)
    except strictjson.JsonFault as fault:
        raise ToolError("INVALID_INPUT", f"{file}: {fault}") from None
    faults = list(jsonschema_rs.Draft202012Validator(_EXPORT).iter_errors(document))
    if faults:
        place = "/".join(str(part) for part in faults[0].instance_path)
        raise ToolError("INVALID_INPUT", f"{file} is not an export of reviews: see /{place}")
    rows = [_event_from(row) for row in document["events"]]
    kept = [_suppression_from(row) for row in document.get("suppressions", [])]
    for rule in sorted({row.rule_id for row in rows} | {row.rule_id for row in kept}):
        if not knows(rule):
            raise ToolError("INVALID_INPUT", f"{file}: there is no rule {rule}")
    reviewed = {(row.rule_id, row.fingerprint) for row in rows}
    for row in kept:
        if (row.rule_id, row.fingerprint) not in reviewed:
            raise ToolError(
                "INVALID_INPUT",
                f"{file}: no review in it is of the suppressed finding {row.fingerprint} ({row.rule_id})",
            )
    return rows, kept


def _imported(who: RepositoryCommand, rows: list[ReviewEvent], kept: list[Suppression]) -> int:
    """How many reviews were new. In portions, each well within the time that a store has for one piece of work."""
    for suppressions in _portions(kept):
        who.false_positives(partial(_suppress, suppressions))
    return sum(who.false_positives(partial(_record_all, events)) for events in _portions(rows))


def _suppress(suppressions: Sequence[Suppression], store: FalsePositives) -> None:
    for suppression in suppressions:
        store.suppress(suppression)


def _record_all(events: Sequence[ReviewEvent], store: FalsePositives) -> int:
    return store.record_all(events)


def _portions(rows: list[Row]) -> list[list[Row]]:
    return [rows[at : at + PORTION] for at in range(0, len(rows), PORTION)]


def _event_json(event: ReviewEvent) -> dict[str, Any]:
    row = asdict(event) | {"event_id": event.event_id, "occurred_at": rfc3339(event.occurred_at / 1000)}
    return row | {"reviewed_at": rfc3339(event.reviewed_at / 1000) if event.reviewed_at is not None else None}


def _event_from(row: dict[str, Any]) -> ReviewEvent:
    times = {key: _milliseconds(row[key]) if row[key] is not None else None for key in ("occurred_at", "reviewed_at")}
    return ReviewEvent(**{key: value for key, value in row.items() if key != "event_id"} | times)


def _suppression_json(suppression: Suppression) -> dict[str, Any]:
    return asdict(suppression) | {
        name: rfc3339(getattr(suppression, name) / 1000) for name in ("created_at", "expires_at")
    }


def _suppression_from(row: dict[str, Any]) -> Suppression:
    return Suppression(**row | {name: _milliseconds(row[name]) for name in ("created_at", "expires_at")})


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError:
        raise ToolError("INVALID_INPUT", "a time in the file does not exist") from None


def _anonymous(found: list[ReviewEvent]) -> list[ReviewEvent]:
    """Names under a key that is thrown away: equal within one export, linked to nothing outside it."""
    key = os.urandom(32)

    def hidden(value: str | None) -> str | None:
        return None if value is None else hmac.new(key, value.encode(), "sha256").hexdigest()[:16]

    return [
        ReviewEvent(
            **asdict(event)
            | {name: hidden(getattr(event, name)) for name in ("org_id", "repository", "reviewed_by", "ticket")}
            | {"reason": None}
        )
        for event in found
    ]


_TIME: Final = {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 500}
_NAME_OR_NONE: Final = {"anyOf": [_NAME, {"type": "null"}]}
_EVENT: Final[dict[str, Any]] = {
    "event_id": _NAME,
    "org_id": _NAME,
    "rule_id": {"type": "string", "pattern": f"^({RULE_FORM.pattern})$"},
    "rule_version": {"type": "integer", "minimum": 1, "maximum": 1_000_000},
    "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "repository": _NAME,
    "verdict": {"enum": ["pending", "false_positive", "true_positive"]},
    "occurred_at": _TIME,
    "reviewed_by": _NAME_OR_NONE,
    "reviewed_at": {"anyOf": [_TIME, {"type": "null"}]},
    "ticket": _NAME_OR_NONE,
    "reason": _NAME_OR_NONE,
}
_SUPPRESSION: Final[dict[str, Any]] = {
    "repository": _NAME,
    "fingerprint": _EVENT["fingerprint"],
    "rule_id": _EVENT["rule_id"],
    "reason": _NAME,
    "reviewer": _NAME,
    "ticket": _NAME,
    "created_at": _TIME,
    "expires_at": _TIME,
}
_EXPORT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schemaVersion", "events"],
    "properties": {
        "schemaVersion": {"enum": [1, 2]},
        "suppressions": {
            "type": "array",
            "maxItems": MAX_EVENTS,
            "items": {
                "type": "object",
                "properties": _SUPPRESSION,
                "required": list(_SUPPRESSION),
                "additionalProperties": False,
            },
        },
        "events": {
            "type": "array",
            "maxItems": MAX_EVENTS,
            "items": {
                "type": "object",
                "properties": _EVENT,
                "required": list(_EVENT),
                "additionalProperties": False,
                # A verdict without a reviewer and a ticket is hearsay.
                "if": {"properties": {"verdict": {"not": {"const": "pending"}}}},
                "then": {"properties": {name: {"type": "string"} for name in ("reviewed_by", "reviewed_at", "ticket")}},
            },
        },
    },
}
