"""`toolgate consent`: what organisations allow, kept by an operator by hand."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from toolgate.cli.options import Home, Json
from toolgate.cli.output import answer_json, say
from toolgate.errors import ToolError
from toolgate.model import strictjson
from toolgate.model.clock import rfc3339
from toolgate.packs.governance.cli.local import person
from toolgate.packs.governance.stores import consents
from toolgate.packs.governance.stores.reviews import DAY_MS
from toolgate.packs.governance.tools.check_consent_requirements import ORG_PATTERN

MAX_BY: Final = 500
"""Characters of a name as it is recorded."""

consent = typer.Typer(no_args_is_help=True, help="Consent of organisations: grant, revoke, list.")


@consent.command()
def grant(
    org: Annotated[str, typer.Argument(help="The organisation.")],
    resources: Annotated[list[str], typer.Argument(help="What may be used.")],
    *,
    by: Annotated[str, typer.Option(help="Who gives it.")],
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="For how long; without it, until revoked.")] = None,
    home: Home = None,
    json: Json = False,
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

        given = [
            consents.Record(org, resource, consents.POLICY_VERSION, by, now, until, None)
            for resource in dict.fromkeys(resources)
        ]
        about = {"org": org, "resources": sorted(set(resources)), "by": by[:MAX_BY]}
        with who.act("consent.grant", about | {"until": None if until is None else rfc3339(until / 1000)}):
            who.consents(lambda kept: kept.grant(given, by))
    if json:
        expires = rfc3339(until / 1000) if until is not None else None
        granted = {"org": org, "granted": resources, "policyVersion": consents.POLICY_VERSION, "expiresAt": expires}
        answer_json(granted | {"by": by})
    else:
        say(f"{org}: granted {', '.join(resources)} under policy {consents.POLICY_VERSION}")


@consent.command()
def revoke(
    org: Annotated[str, typer.Argument(help="The organisation.")],
    resource: Annotated[str, typer.Argument(help="What may no longer be used.")],
    *,
    by: Annotated[str, typer.Option(help="Who takes it back.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Take consent back, at once."""
    with person(home, keep=True) as who:
        about = {"org": org[:MAX_BY], "resource": resource[:MAX_BY], "by": by[:MAX_BY]}
        with who.act("consent.revoke", about) as known:
            found = who.consents(lambda kept: kept.revoke(org, resource, by, who.now))
            known["found"] = found
    if not found:
        raise ToolError("CONSENT_NOT_FOUND", f"{org} never granted {resource}", missing=True)
    if json:
        answer_json({"org": org, "revoked": [resource], "by": by})
    else:
        say(f"{org}: revoked {resource}")


@consent.command("list")
def list_consents(
    org: Annotated[str | None, typer.Argument(help="The organisation; else the one of the settings.")] = None,
    *,
    json: Json = False,
    home: Home = None,
) -> None:
    """For every resource: who granted it, when, for what, and until when."""
    with person(home) as who:
        asked = org or who.organisation
        found = who.consents(lambda kept: consents.statuses(kept, asked, list(consents.RESOURCES), who.now))
    rows = [_row(status) for status in found]
    if json:
        say(strictjson.dumps(rows).decode())
        return
    say(f"{asked}, policy {consents.POLICY_VERSION}")
    for row in rows:
        say(f"{'✓' if row['valid'] else '✗'} {row['resource']}: {row['reason']}{_history(row)}")
        say(f"    for: {row['about']} ({row['risk']} risk, kept {row['retentionDays']} days)")
        say(f"    used by: {', '.join(row['operations']) or 'nothing'}")


def _row(status: consents.ConsentStatus) -> dict[str, Any]:
    """Who granted is for operators: what the tool answers to callers does not have it."""
    resource, record = consents.RESOURCES[status.resource], status.record
    revoked = record.revoked_at if record else None
    operations = [".".join(name) for name, needs in consents.REQUIRED.items() if status.resource in needs]
    return status.as_json() | {
        "grantedBy": record.granted_by if record else None,
        "revokedAt": rfc3339(revoked / 1000) if revoked is not None else None,
        "about": resource.about,
        "risk": resource.risk,
        "retentionDays": resource.retention_days,
        "operations": sorted(operations),
    }


def _history(row: dict[str, Any]) -> str:
    if not row["grantedBy"]:
        return ""
    until = f"until {row['expiresAt'][:10]}" if row["expiresAt"] else "until revoked"
    ended = f", revoked on {row['revokedAt'][:10]}" if row["revokedAt"] else ""
    return f"; given by {row['grantedBy']} on {row['grantedAt'][:10]} under policy {row['version']}, {until}{ended}"
