"""Templates, and how values become text in them. Whatever a page shows is text: markup is escaped, and what would steer the
reading of text (control, direction and invisible characters) is spelt out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from toolgate.kit.reports.printable import printable, printable_lines
from toolgate.model import strictjson

MAX_TEXT: Final = 2000
"""Characters of one text on a page. What is cut ends with an ellipsis."""
MAX_LINES: Final = 40_000
"""Of a text in several lines: a schema, a record."""
_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class ManyLines(str):
    """A text of several lines, which it keeps on a page."""

    __slots__ = ()


class WholeText(ManyLines):
    """One that is never cut: who decides about it must see all of it. Whoever makes it bounds it."""

    __slots__ = ()


class Fields(dict[str, Any]):
    """A record, for a template: what it does not hold is None. Templates are strict about everything else."""

    def __missing__(self, name: str) -> None:
        return None


def fields(value: Any) -> Any:
    """A record with all that is in it."""
    if isinstance(value, dict):
        return Fields({name: fields(each) for name, each in value.items()})
    return [fields(each) for each in value] if isinstance(value, list) else value


def shown(value: Any) -> Any:
    """What a template writes for a value: Jinja2 asks this of each, then escapes."""
    if value is None:
        return ""
    if isinstance(value, ManyLines):
        return printable_lines(value if isinstance(value, WholeText) else _cut(value, MAX_LINES))
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(_cut(value, MAX_TEXT))
    return value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


def clock_time(ms: int) -> str:
    return _moment(ms).strftime("%H:%M:%S.") + f"{ms % 1000:03d}"


def day(ms: int) -> str:
    return _moment(ms).strftime("%Y-%m-%d")


def iso(ms: int) -> str:
    return _moment(ms).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def ago(ms: int, now: float) -> str:
    """`4 min ago`; of what is to come `in 3 days`."""
    seconds = now - ms / 1000
    size, future = abs(seconds), seconds < -1
    for unit, length in (("day", 86_400), ("h", 3600), ("min", 60)):
        if size >= length:
            number = int(size // length)
            text = f"{number} {unit}{'s' if unit == 'day' and number != 1 else ''}"
            return f"in {text}" if future else f"{text} ago"
    return f"in {int(size)} s" if future else f"{int(size)} s ago"


def duration(us: int) -> str:
    if us == 0:
        return "–"
    if us < 1000:
        return f"{us / 1000:.2f} ms"
    return f"{us / 1000:.1f} ms" if us < 1_000_000 else f"{us / 1_000_000:.1f} s"


def grouped(number: int) -> str:
    """1 234 567, with narrow spaces that do not break."""
    return f"{number:,}".replace(",", "\u202f")


def tool_name(tool: str) -> str:
    """`mcp.tool:notes.add` without what every tool's id begins with."""
    return tool.rpartition(":")[2]


def tone(verdict: str) -> Literal["good", "warn", "bad"]:
    """The colour of a verdict. Words say the same."""
    if verdict in ("ok", "pass"):
        return "good"
    if verdict in ("warn", "intent", "too_many", "too_fast", "not_there", "tool_said_no", "bad_arguments"):
        return "warn"
    return "bad"


def pretty(value: Any) -> ManyLines:
    return ManyLines(strictjson.dumps_pretty(value).decode())


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(str(Path(str(resources.files(__package__) / "templates")))),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "clock": clock_time,
        "day": day,
        "duration": duration,
        "grouped": _grouped,
        "iso": iso,
        "part": lambda text: quote(str(text), safe=""),
        "pretty": pretty,
        "tone": tone,
        "tool": tool_name,
    }
    return made


def _grouped(number: int) -> Markup:
    return Markup(grouped(number))  # noqa: S704 (digits and spaces)


def prepare() -> None:
    """Compiles the templates: a third of a second, which the first reader would else wait for."""
    made = _environment()
    for name in made.list_templates():
        made.get_template(name)


def render(template: str, values: Mapping[str, Any]) -> str:
    return _environment().get_template(f"{template}.html").render(values)


@cache
def asset(name: str) -> tuple[bytes, bytes] | None:
    """(media type, bytes) of a file that pages load."""
    found = {path.name: path for path in (resources.files(__package__) / "assets").iterdir()}
    path = found.get(name)
    kind = _TYPES.get(f".{name.rpartition('.')[2]}")
    return None if path is None or kind is None else (kind, path.read_bytes())
