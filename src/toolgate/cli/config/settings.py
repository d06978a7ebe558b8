"""The settings in force, as `toolgate config` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolgate.cli import output
from toolgate.cli.options import Flags
from toolgate.errors import StartRefused
from toolgate.model import strictjson
from toolgate.packs.discovery import store_settings
from toolgate.settings.spec import Resolved

if TYPE_CHECKING:
    from toolgate.settings import Settings
    from toolgate.settings.spec import Resolved


def print_settings(flags: Flags, *, resolved: bool, json: bool) -> None:
    rows = _rows(flags.load())
    if json:
        output.answer_json({row.spec.key: _machine(row) if resolved else row.shown for row in rows})
    elif resolved:
        headings = ["setting", "value", "unit", "from", "variable"]
        cells = [[row.spec.key, toml_value(row.shown), row.spec.unit, row.source, row.spec.variable] for row in rows]
        output.table(headings, cells)
    else:
        output.say(as_toml(rows))


def _rows(settings: Settings) -> list[Resolved]:
    """Every setting; also of stores, which the enabled packs bring, those that are not set."""
    rows = settings.resolved()
    known = {row.spec.key for row in rows}
    try:
        stores = store_settings(settings.packs.enabled)
    except StartRefused as fault:  # the settings are shown also where they name a pack that is not there
        output.note(f"note: {str(fault).partition(chr(10))[0]}")
        stores = []
    return rows + [Resolved(spec, spec.default, "default") for spec in stores if spec.key not in known]


def _machine(row: Resolved) -> dict[str, Any]:
    return {"value": row.shown, "source": row.source, "variable": row.spec.variable, "flag": row.spec.flag}


def as_toml(rows: list[Resolved]) -> str:
    """The settings as a toolgate.toml that would give them; top-level keys first, as TOML wants it."""
    tables: dict[str, list[str]] = {"": []}
    for row in rows:
        table, _, name = row.spec.key.rpartition(".")
        line = f"{name} = {toml_value(row.shown)}"
        if row.shown is None:
            line = f"# {name} is not set"
        elif row.spec.secret and row.value:
            line = f"# {name} is set; not shown"
        tables.setdefault(table, []).append(line)
    blocks = ["\n".join([*([f"[{table}]"] if table else []), *lines]) for table, lines in tables.items() if lines]
    return "\n\n".join(blocks)


def toml_value(value: Any) -> str:
    """JSON's spelling of texts, numbers, lists and booleans is TOML's too (printable text: the loader refuses other)."""
    return "" if value is None else strictjson.dumps(value).decode()
