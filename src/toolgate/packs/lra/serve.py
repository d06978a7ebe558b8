"""What the dev site shows beside the paper itself: the overlay's findings, and a list of papers for a whole workspace."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from toolgate.model.powers import Site
from toolgate.packs.lra.artifact import Artifact, gather

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles

MAX_SHOWN: Final = 20
"""Findings in the overlay; an author mends the first ones first."""
MAX_PAPERS: Final = 500

_HOME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Papers</title><style>
body {{ font: 17px/1.6 Georgia, serif; max-width: 38em; margin: 3em auto; padding: 0 1em; color-scheme: light dark; }}
li {{ margin: .4em 0; }}
</style></head><body><h1>Papers</h1>{content}</body></html>
"""


def site(root: str, port: int) -> Site:
    return Site(root=root, port=port, gather=gather, judge=overlay, home=home_page)


def overlay(artifact: Artifact) -> dict[str, Any]:
    """The live tier and what stands in its way."""
    from toolgate.packs.lra import validate  # noqa: PLC0415 (the HTML parser, 40 ms, in the worker only)

    report = validate.validate(artifact)
    failing = [one for one in report.findings if validate.status_of(one) == "fail"]
    return {
        "tier": report.tier,
        "passed": report.passed,
        "total": report.total,
        "failing": [
            {"rule": one.rule, "message": one.message, "file": one.file, "line": one.line, "fix": one.fix}
            for one in failing[:MAX_SHOWN]
        ],
    }


def home_page(files: ReadFiles, directory: str) -> bytes:
    """A page of links to the papers directly below `directory`."""
    prefix = "" if directory == "." else f"{directory}/"
    names = [
        entry.path.removeprefix(prefix).removesuffix("/index.html")
        for entry in files.walk(directory)
        if entry.path.removeprefix(prefix).count("/") == 1 and entry.path.endswith("/index.html")
    ]
    if not names:
        return _HOME.format(content="<p>No papers yet: create one with <code>lra init NAME</code>.</p>").encode()
    items = "".join(f'<li><a href="{quote(name)}/">{escape(name)}</a></li>' for name in names[:MAX_PAPERS])
    return _HOME.format(content=f"<ul>{items}</ul>").encode()


def text(data: dict[str, Any]) -> str:
    """Standard output in document 000's four lines; a list or a stop says what there is or was."""
    if data.get("url"):
        lines = [f"  Serving at {data['url'].rstrip('/')}", "  Press Ctrl+C to stop", "  Watching for file changes..."]
        return "\n".join(["LRA Dev Server", *lines, ""])
    if "stopped" in data:
        return f"Stopped {data['stopped']}\n"
    running = [f"  {one['id']}  {one['url']}  {one['path']}" for one in data["running"]]
    return "\n".join(["LRA Dev Servers", *(running or ["  none running"]), ""])
