"""`toolgate fp` and `toolgate consent`: what an operator keeps in the stores by hand."""

from __future__ import annotations

import hmac
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import jsonschema_rs
import typer
from msgspec.structs import asdict

from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.packs.governance import consent as consents
from toolgate.packs.governance import events
from toolgate.packs.governance.check_consent import ORG_PATTERN
from toolgate.packs.governance.events import DAY_MS, Event, Suppression
from toolgate.packs.governance.people import person
from toolgate.packs.governance.rules import RULES
from toolgate.packs.governance.tables import CONSENT, FALSE_POSITIVES

MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024
MAX_EVENTS: Final = 100_000
RULE: Final = r"(?:MD|L0)-[0-9]{3}|BASELINE"

fp = typer.Typer(no_args_is_help=True, help="False positives: mark findings, list, export and import reviews.")
consent = typer.Typer(no_args_is_help=True, help="Consent of organisations: grant, revoke, list.")

Home = Annotated[
    Path | None, typer.Option("--home", metavar="DIR", help="Where toolgate.toml is; else TOOLGATE_HOME, else here.")
]
Org = Annotated[str, typer.Option("--org", help="The organisation whose review it is.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]


@fp.command()
def mark(  # noqa: PLR0913 (typer reads the options from the signature)
    fingerprint: Annotated[str, typer.Argument(help="The finding's fingerprint: 32 hex digits, in every report.")],
    *,
    rule: Annotated[str, typer.Option(help="Its rule, such as MD-002.")],
    reason: Annotated[str, typer.Option(help="Why it is a false (or true) positive.")],
    reviewer: Annotated[str, typer.Option(help="Who looked at it.")],
    ticket: Annotated[str, typer.Option(help="Where the decision is written down.")],
    days: Annotated[int, typer.Option(min=1, max=365, help="For how long it is suppressed.")] = 90,
    true_positive: Annotated[
        bool, typer.Option("--true-positive", help="Record that it is right; suppress nothing.")
    ] = False,
    context: Annotated[str, typer.Option(help="The repository, as given to analyze --context.")] = "workspace",
    org: Org = "local",
    home: Home = None,
) -> None:
    """Record a review; a false positive is suppressed until its time is over."""
    if not re.fullmatch(r"[0-9a-f]{32}", fingerprint):
        raise typer.BadParameter("FINGERPRINT must be 32 hex digits")
    if not re.fullmatch(RULE, rule):
        raise typer.BadParameter("--rule must be a rule's id, such as MD-002")
    for name, value in {"--reason": reason, "--reviewer": reviewer, "--ticket": ticket}.items():
        if not value.strip() or len(value) > 500:
            raise typer.BadParameter(f"{name} must not be empty or longer than 500 characters")
    with person(home, keep=True) as who:
        now = who.now
        verdict: events.Verdict = "true_positive" if true_positive else "false_positive"
        version = next((one.version for one in RULES if one.id == rule), 1)
        event = Event(org, rule, version, fingerprint, context, verdict, now, reviewer, now, ticket, reason)
        until = now + days * DAY_MS

        def work(connection: Any) -> None:
            events.record(connection, event)
            if not true_positive:
                one = Suppression(context, fingerprint, rule, reason, reviewer, ticket, now, until)
                events.suppress(connection, one)

        who.store(FALSE_POSITIVES, work)
    after = "" if true_positive else f", suppressed until {rfc3339(until / 1000)[:10]}"
    typer.echo(f"{rule} {fingerprint}: {verdict.replace('_', ' ')}{after}")


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
        found = who.store(FALSE_POSITIVES, lambda c: events.events(c, org_id=org, rule_id=rule, limit=limit))
    if json:
        typer.echo(strictjson.dumps([_event_json(one) for one in found]).decode())
        return
    for one in found:
        typer.echo(
            f"{rfc3339(one.occurred_at / 1000)}  {one.rule_id}  {one.fingerprint}  {one.verdict}  {one.reviewed_by or '-'}"
            f"  {one.ticket or '-'}  {one.reason or ''}"
        )
    if not found:
        typer.echo("no reviews", err=True)


@fp.command()
def export(
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there.")] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace organisations, repositories, people, tickets and reasons.")
    ] = False,
    home: Home = None,
) -> None:
    """All reviews as one JSON document, for `fp import` elsewhere."""
    with person(home) as who:
        found = who.store(FALSE_POSITIVES, lambda c: events.events(c, limit=MAX_EVENTS))
    if anonymise:
        found = _anonymous(found)
    text = strictjson.dumps_pretty({"schemaVersion": 1, "events": [_event_json(one) for one in found]}).decode()
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")
    typer.echo(f"{len(found)} reviews", err=True)


@fp.command("import")
def import_events(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `fp export` wrote.")], *, home: Home = None
) -> None:
    """Add reviews of another store. What is there already is not counted twice; one bad row and nothing is added."""
    try:
        document = strictjson.loads(file.read_bytes(), max_bytes=MAX_IMPORT_BYTES)
    except strictjson.JsonFault as fault:
        raise ToolError("INVALID_INPUT", f"{file}: {fault}") from None
    faults = list(jsonschema_rs.Draft202012Validator(_EXPORT).iter_errors(document))
    if faults:
        place = "/".join(str(part) for part in faults[0].instance_path)
        raise ToolError("INVALID_INPUT", f"{file} is not an export of reviews: see /{place}")
    rows = [_event_from(row) for row in document["events"]]
    with person(home, keep=True) as who:
        added = who.store(FALSE_POSITIVES, lambda c: sum(events.record(c, row) for row in rows))
    typer.echo(f"{added} added, {len(rows) - added} were there already")


@consent.command()
def grant(
    org: Annotated[str, typer.Argument(help="The organisation.")],
    resources: Annotated[list[str], typer.Argument(help="What may be used.")],
    *,
    by: Annotated[str, typer.Option(help="Who gives it.")],
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="For how long; without it, until revoked.")] = None,
    home: Home = None,
) -> None:
    """Record consent under the current policy version."""
    if not re.fullmatch(ORG_PATTERN.strip("^$"), org):
        raise typer.BadParameter("ORG must be letters, digits and . _ : / - and begin with a letter or digit")
    unknown = sorted(set(resources) - consents.RESOURCES.keys())
    if unknown:
        raise typer.BadParameter(f"no such resource: {', '.join(unknown)}; there are {', '.join(consents.RESOURCES)}")
    with person(home, keep=True) as who:
        now = who.now
        until = now + days * DAY_MS if days else None

        def work(connection: Any) -> None:
            for resource in resources:
                record = consents.Record(org, resource, consents.POLICY_VERSION, by, now, until, None)
                consents.grant(connection, record, by)

        who.store(CONSENT, work)
    typer.echo(f"{org}: granted {', '.join(resources)} under policy {consents.POLICY_VERSION}")


@consent.command()
def revoke(
    org: Annotated[str, typer.Argument(help="The organisation.")],
    resource: Annotated[str, typer.Argument(help="What may no longer be used.")],
    *,
    by: Annotated[str, typer.Option(help="Who takes it back.")],
    home: Home = None,
) -> None:
    """Take consent back, at once."""
    with person(home, keep=True) as who:
        found = who.store(CONSENT, lambda c: consents.revoke(c, org, resource, by, who.now))
    if not found:
        raise ToolError("CONSENT_NOT_FOUND", f"{org} never granted {resource}", missing=True)
    typer.echo(f"{org}: revoked {resource}")


@consent.command("list")
def list_consents(
    org: Annotated[str, typer.Argument(help="The organisation.")], *, json: Json = False, home: Home = None
) -> None:
    """The state of every resource for one organisation."""
    with person(home) as who:
        found = who.store(CONSENT, lambda c: consents.statuses(c, org, list(consents.RESOURCES), who.now))
    rows = [one.as_json() for one in found]
    if json:
        typer.echo(strictjson.dumps(rows).decode())
        return
    for row in rows:
        until = f" until {row['expiresAt'][:10]}" if row["expiresAt"] else ""
        typer.echo(f"{'✓' if row['valid'] else '✗'} {row['resource']}: {row['reason']}{until}")


def _event_json(one: Event) -> dict[str, Any]:
    row = asdict(one) | {"event_id": one.event_id, "occurred_at": rfc3339(one.occurred_at / 1000)}
    return row | {"reviewed_at": rfc3339(one.reviewed_at / 1000) if one.reviewed_at is not None else None}


def _event_from(row: dict[str, Any]) -> Event:
    times = {key: _milliseconds(row[key]) if row[key] is not None else None for key in ("occurred_at", "reviewed_at")}
    return Event(**{key: value for key, value in row.items() if key != "event_id"} | times)


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)
    except ValueError:
        raise ToolError("INVALID_INPUT", "a time in the file does not exist") from None


def _anonymous(found: list[Event]) -> list[Event]:
    """Names under a key that is thrown away: equal within one export, linked to nothing outside it."""
    key = os.urandom(32)

    def hidden(value: str | None) -> str | None:
        return None if value is None else hmac.new(key, value.encode(), "sha256").hexdigest()[:16]

    return [
        Event(
            **asdict(one)
            | {name: hidden(getattr(one, name)) for name in ("org_id", "repository", "reviewed_by", "ticket")}
            | {"reason": None}
        )
        for one in found
    ]


_TIME: Final = {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z$"}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 500}
_NAME_OR_NONE: Final = {"anyOf": [_NAME, {"type": "null"}]}
_EVENT: Final[dict[str, Any]] = {
    "event_id": _NAME,
    "org_id": _NAME,
    "rule_id": {"type": "string", "pattern": f"^({RULE})$"},
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
_EXPORT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schemaVersion", "events"],
    "properties": {
        "schemaVersion": {"const": 1},
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
