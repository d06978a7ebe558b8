"""What is offered, what was found about it and what differs from the pin, for people."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from toolgate.cli import output
from toolgate.cli.upstream.inspection import Inspection, findings_about
from toolgate.kit.findings import by_severity
from toolgate.model import strictjson
from toolgate.packs.upstream.scan import shown

if TYPE_CHECKING:
    from toolgate.kit.findings import Finding
    from toolgate.kit.pins import Pin, PinDrift

_COLOURS: Final = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}


def inspection_json(inspected: Inspection) -> dict[str, Any]:
    return {
        "upstream": inspected.table.name,
        "peer": dict(inspected.peer),
        "protocolVersion": inspected.offer.version,
        "server": dict(inspected.offer.server),
        **{
            kind: [items[name] for name in sorted(items)]
            for kind, items in (
                ("tools", inspected.offer.tools),
                ("prompts", inspected.offer.prompts),
                ("resources", inspected.offer.resources),
                ("resourceTemplates", inspected.offer.templates),
            )
            if items or kind == "tools"
        },
        "findings": [finding.as_json() for finding in inspected.findings],
    }


def show_inspection(inspected: Inspection, tools: Sequence[str] | None = None) -> None:
    offer = inspected.offer
    server = " ".join(str(offer.server.get(key, "")) for key in ("name", "version")).strip()
    names = sorted(offer.places()) if tools is None else tools
    others = {"prompts": len(offer.prompts), "resources": len(offer.resources), "templates": len(offer.templates)}
    counts = "".join(f", {number} {kind}" for kind, number in others.items() if number)
    head = f"{inspected.table.name}: {shown(server) or 'no name'}, protocol {offer.version}, {len(offer.tools)} tools{counts}"
    output.line((head, "bold"))
    for name in names:
        worst = [
            finding
            for finding in inspected.findings
            if finding.extra.get("tool") == shown(name) and finding.severity != "info"
        ]
        output.line((f"  {shown(name)}", "" if not worst else _COLOURS[worst[0].severity]))
    _show_findings(inspected.findings)


def show_tool(inspected: Inspection, name: str) -> None:
    output.line((f"\n{shown(name)}", "bold"))
    _show_description(inspected, name)
    _show_findings([finding for finding in inspected.findings if finding.extra.get("tool") == shown(name)])


def _show_description(inspected: Inspection, name: str) -> None:
    text = inspected.offer.places()[name].get("description")
    output.write((text if isinstance(text, str) else "(no description)") + "\n")


def _show_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.severity != "info":
            output.line(
                (f"  {finding.severity:<9}", _COLOURS[finding.severity]),
                (f"{finding.rule}  {finding.selector}: {finding.message}", ""),
            )
    counts = ", ".join(f"{number} {severity}" for severity, number in by_severity(findings).items() if number)
    output.note(f"  findings: {counts or 'none'}")


def show_drift(pin: Pin, inspected: Inspection, found: PinDrift) -> None:
    if not found:
        output.line(("ok  ", "green"), (f" {pin.upstream} is as it was approved", ""))
        return
    if found.peer:
        output.line(("program ", "bold red"), ("is another one than was approved; everything is refused", ""))
    for name, fields in sorted(found.changed.items()):
        output.line(("changed ", "yellow"), (f"{shown(name)}: {', '.join(fields)}", ""))
        for each in fields:
            _show_field(pin.places()[name].definition.get(each), inspected.offer.places()[name].get(each))
    for name in found.added:
        output.line(("new     ", "yellow"), (shown(name), ""))
        _show_description(inspected, name)
    for word, names in (("gone    ", found.gone), ("differs ", found.about)):
        for name in names:
            output.line((word, "yellow"), (shown(name), ""))
    _show_findings(findings_about(inspected, found))


def _show_field(before: Any, after: Any) -> None:
    was, now = (
        value.splitlines() if isinstance(value, str) else strictjson.dumps_pretty(value).decode().splitlines()
        for value in (before, after)
    )
    for line in list(difflib.unified_diff(was, now, lineterm="", n=1))[2:]:
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        output.line((f"    {line}", style))
