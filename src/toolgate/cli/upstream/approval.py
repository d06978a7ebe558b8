"""`toolgate upstream adopt` and `approve`: what a person approves is pinned; nothing here approves by itself."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolgate.cli.admin_records import recorded
from toolgate.cli.options import Home, Json, home_at
from toolgate.cli.upstream.files import policy_of, roles_of, rows_for, write_pin, write_rows
from toolgate.cli.upstream.inspection import Inspection, drift_of, inspect, pinning, served_by
from toolgate.cli.upstream.shared import Name, Yes, confirmed, pin_at, report
from toolgate.cli.upstream.show import show_drift, show_inspection, show_tool
from toolgate.errors import ExitCode, StartRefused
from toolgate.kit.pins import approve as approved
from toolgate.kit.pins import digest_of, pin_of
from toolgate.packs.upstream.scan import not_servable, shown
from toolgate.policy.bundle import load_decisions

if TYPE_CHECKING:
    from toolgate.kit.pins import Pin, PinDrift
    from toolgate.settings import Settings

app = typer.Typer()


@app.command()
def adopt(
    name: Name,
    roles: Annotated[str, typer.Option("--roles", metavar="A,B", help="Who may call its tools. There is no default.")],
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="GLOB",
            help="Only these of its tools ('prompt:*', 'resource:*' and 'template:*' name the rest); may be repeated.",
        ),
    ] = None,
    yes: Yes = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Pin an upstream as it is now, and give its tools, prompts and resources to roles. In a terminal each is asked about."""
    settings = home_at(home)
    policy, chosen_roles = policy_of(settings), _roles(roles, settings)
    inspected = inspect(settings, name)
    blocked = not_servable(inspected.findings)
    wanted = [offered for offered in sorted(inspected.offer.places()) if _matches(offered, tool)]
    chosen = [offered for offered in wanted if shown(offered) not in blocked]
    if not json:
        show_inspection(inspected, wanted)
    if not yes:
        chosen = _chosen(inspected, chosen)
    if not chosen:
        raise StartRefused(f"Nothing of {name} was approved.\nLook at the findings: toolgate upstream try {name}")
    with pinning(name):
        pin = pin_of(name, inspected.peer, inspected.offer, set(chosen).__contains__)
    names, refused = served_by(settings, inspected, pin)
    rows = rows_for(policy, name, names.values(), dict.fromkeys(names.values(), chosen_roles))
    about = {"upstream": name, "pin": pin.digest, "roles": chosen_roles, "tools": sorted(names.values())}
    with recorded(settings, "upstream.adopt", about):
        write_pin(policy, pin)
        write_rows(policy, rows)
    left = sorted({*wanted} - names.keys())
    told = {"adopted": name, "pin": pin.digest, "tools": sorted(names.values()), "left_out": left, "refused": refused}
    text = (
        f"adopted {name}: {_counted(names.values())} for {', '.join(chosen_roles)}. "
        f"A running server takes it over: toolgate reload.{_unserved(refused)}"
    )
    report(json, told, text)


@app.command()
def approve(
    name: Name,
    tool: Annotated[
        list[str] | None,
        typer.Option("--tool", metavar="TOOL", help="Only this tool (or prompt:NAME); may be repeated."),
    ] = None,
    roles: Annotated[
        str | None, typer.Option("--roles", metavar="A,B", help="For tools that are new; those known keep theirs.")
    ] = None,
    yes: Yes = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Approve what changed since an upstream was adopted, after showing it. New tools need --roles to be served."""
    settings = home_at(home)
    policy, pin = policy_of(settings), pin_at(settings, name)
    chosen_roles = None if roles is None else _roles(roles, settings)
    inspected = inspect(settings, name)
    found = drift_of(pin, inspected)
    fresh = _approved(pin, inspected, found, tool)
    names, refused = served_by(settings, inspected, fresh)
    given = roles_of(policy, name)
    new = {place: served for place, served in names.items() if served not in given and (not tool or place in tool)}
    added = sorted(new.values())
    unserved = f" Not served without --roles: {', '.join(added)}." if added and roles is None else ""
    if not found and fresh is pin and (chosen_roles is None or not new):
        told = {"approved": name, "pin": pin.digest, "changed": False, "new": added}
        report(json, told, f"{name} is as it was approved.{unserved}")
        return
    _refuse_critical(pin, inspected, tool)
    rows = rows_for(policy, name, names.values(), {} if chosen_roles is None else dict.fromkeys(added, chosen_roles))
    if not json:
        show_drift(pin, inspected, found)
        for place in sorted(new.keys() - set(found.added)):
            show_tool(inspected, place)
    if not yes and not confirmed(f"Approve this for {name}?"):
        raise typer.Exit(ExitCode.FAILED)
    pins = {"pin": fresh.digest, "before": pin.digest}
    about: dict[str, Any] = {"upstream": name, **pins, "diff": digest_of(found.as_json())}
    about |= {"roles": chosen_roles, "tools": added} if chosen_roles is not None else {}
    with recorded(settings, "upstream.approve", about):  # all was checked before: what is refused has written nothing
        write_pin(policy, fresh)
        write_rows(policy, rows)
    told = {"approved": name, **pins, "changed": True, "new": added, "refused": refused}
    served = f" Served from now on: {', '.join(added)}." if added and chosen_roles is not None else unserved
    text = f"approved {name}.{served} A running server takes it over: toolgate reload.{_unserved(refused)}"
    report(json, told, text)


def _approved(pin: Pin, inspected: Inspection, found: PinDrift, places: Sequence[str] | None) -> Pin:
    """The pin itself where there is nothing to approve. Raises: StartRefused."""
    if not found and not places:
        return pin
    with pinning(pin.upstream):
        fresh = approved(pin, inspected.offer, inspected.peer, places)
    return fresh if fresh.digest != pin.digest else pin


def _refuse_critical(pin: Pin, inspected: Inspection, places: Sequence[str] | None) -> None:
    """What was declined stays so, unless it is named. Raises: StartRefused."""
    blocked = not_servable(inspected.findings)
    for place in places or sorted(inspected.offer.places().keys() - set(pin.declined)):
        if shown(place) in blocked:
            raise StartRefused(
                f"{shown(place)} of {pin.upstream} has a critical finding.\n"
                f"Look at it: toolgate upstream try {pin.upstream}"
            )


def _unserved(refused: Mapping[str, str]) -> str:
    """A line for each that has no name here."""
    return "".join(f"\nnot served: {shown(place)}: {why}" for place, why in sorted(refused.items()))


def _counted(names: Collection[str]) -> str:
    """`2 tools`, and prompts and resources where there are any."""
    kinds = Counter(name.partition(":")[0] if ":" in name else "tool" for name in names)
    others = (f"{kinds[kind]} {kind}s" for kind in ("prompt", "resource") if kinds[kind])
    return ", ".join([f"{kinds['tool']} tools", *others])


def _roles(text: str, settings: Settings) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = load_decisions(settings.paths.policy)[0].calling_roles
    if not words or any(word not in known for word in words):
        raise typer.BadParameter(f"give one or more of {', '.join(known)}", param_hint="--roles")
    return [role for role in known if role in words]


def _matches(place: str, globs: Sequence[str] | None) -> bool:
    return not globs or any(fnmatch.fnmatchcase(place, glob) for glob in globs)


def _chosen(inspected: Inspection, places: Sequence[str]) -> list[str]:
    """Each is shown with what was found about it, and asked about."""
    chosen = []
    for place in places:
        show_tool(inspected, place)
        if confirmed(f"Serve {shown(place)}?"):
            chosen.append(place)
    return chosen
