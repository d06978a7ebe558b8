"""`toolgate upstream try`, `diff` and `status`: what is there, and whether it is as approved."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolgate import __version__
from toolgate.cli import output
from toolgate.cli.options import Home, Json, home_at
from toolgate.cli.upstream.inspection import drift_of, findings_about, inspect
from toolgate.cli.upstream.shared import Name, pin_at
from toolgate.cli.upstream.show import inspection_json, show_drift, show_inspection
from toolgate.errors import ExitCode, StartRefused
from toolgate.kit.reports.render import Checker, render
from toolgate.upstreams import read_pins

if TYPE_CHECKING:
    from toolgate.settings import Settings

app = typer.Typer()

WATCH_S: Final = 2.0


class Form(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"


@app.command("try")
def try_(
    name: Name,
    form: Annotated[Form, typer.Option("--format", help="How findings are told.")] = Form.text,
    home: Home = None,
    json: Json = False,
) -> None:
    """Connect, list, scan. Nothing is written. Exit 1 when a finding is critical."""
    inspected = inspect(home_at(home), name)
    if json:
        output.answer_json(inspection_json(inspected))
    elif form is not Form.text:
        output.write(render(form.value, inspected.findings, Checker("toolgate upstream", __version__)))
    else:
        show_inspection(inspected)
    critical = any(finding.severity == "critical" for finding in inspected.findings)
    raise typer.Exit(ExitCode.FAILED if critical else ExitCode.OK)


@app.command()
def diff(name: Name, home: Home = None, json: Json = False) -> None:
    """What differs from what was approved. Exit 3 when something does."""
    settings = home_at(home)
    pin = pin_at(settings, name)
    inspected = inspect(settings, name)
    found = drift_of(pin, inspected)
    if json:
        about = [finding.as_json() for finding in findings_about(inspected, found)]
        output.answer_json({"upstream": name, "pin": pin.digest, **found.as_json(), "findings": about})
    else:
        show_drift(pin, inspected, found)
    raise typer.Exit(ExitCode.DRIFT if found else ExitCode.OK)


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Ask again and again, until Ctrl+C.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Ask every upstream now: is it there, and is it as approved? Exit 1 when one is not."""
    settings = home_at(home)
    while True:
        found = [_state(settings, name) for name in sorted(settings.upstreams)]
        if json:
            output.answer_json(found)
        else:
            for state in found:
                good = state["state"] == "up" and not state.get("drift")
                mark = ("ok  ", "green") if good else ("FAIL", "bold red")
                output.line(mark, (f" {state['name']:<20} {state['state']:<12} {state.get('reason', '')}", ""))
        if not watch:
            break
        output.show_lines_at_once()
        time.sleep(WATCH_S)
    bad = any(state["state"] != "up" or state.get("drift") for state in found)
    raise typer.Exit(ExitCode.FAILED if bad else ExitCode.OK)


def _state(settings: Settings, name: str) -> dict[str, Any]:
    pin = read_pins(settings.paths.policy, [name]).get(name)
    if pin is None:
        return {"name": name, "state": "not_adopted", "reason": f"toolgate upstream adopt {name}"}
    try:
        inspected = inspect(settings, name)
    except StartRefused as fault:
        return {"name": name, "state": "down", "reason": str(fault).partition("\n")[0]}
    found = drift_of(pin, inspected)
    reason = f"differs from its pin: toolgate upstream diff {name}" if found else ""
    return {"name": name, "state": "up", "reason": reason, **({"drift": found.as_json()} if found else {})}
