"""What the dev site shows beside the paper itself: the overlay's findings, and a list of papers for a whole workspace."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct

from toolgate.errors import ToolError
from toolgate.packs.lra.paper.artifact import Artifact, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolgate.model.powers import ReadFiles

MAX_SHOWN: Final = 20
"""Findings in the overlay; an author mends the first ones first."""
MAX_PAPERS: Final = 500

MAX_TITLED_BYTES: Final = 1024 * 1024
"""A larger page is listed by its name."""

_HOME: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Papers</title><style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0 auto; padding: 4rem 1.25rem; max-width: 42rem; font: 1.06rem/1.6 Charter, Georgia, "Noto Serif", serif;
  background: light-dark(#fffdf8, #15171b); color: light-dark(#1f1d1a, #e9e5dc); }}
h1 {{ margin: 0 0 1.5rem; font-size: 2.2rem; line-height: 1.1; }}
ul {{ margin: 0; padding: 0; list-style: none; }}
li a {{ display: block; padding: .8rem 0; border-top: 1px solid light-dark(#e6e0d4, #2f333a); color: inherit; }}
li a {{ text-decoration: none; }}
li a:hover strong {{ text-decoration: underline; }}
li strong {{ display: block; font-size: 1.15rem; }}
li span, p {{ font: .85rem system-ui, sans-serif; color: light-dark(#5c574e, #aaa498); }}
</style></head><body><main><h1>Papers</h1>{content}</main></body></html>
"""
_TITLE: Final = re.compile(rb"<title[^>]*>([^<]{1,1000})</title", re.IGNORECASE)


class Site(Struct, frozen=True):
    """What a job of kind `site` serves: a directory of the workspace, to browsers on this machine, while it is edited."""

    root: str
    port: int
    gather: Callable[[ReadFiles, str], Any]
    """(files, directory) -> what `judge` needs. Reads; runs in a thread."""
    judge: Callable[[Any], Mapping[str, Any]]
    """A module-level pure function, run as compute: what the page's overlay shows."""
    home: Callable[[ReadFiles, str], bytes] | None = None
    """The page at `/` when the directory has no index.html of its own. Reads; runs in a thread."""


def site(root: str, port: int) -> Site:
    return Site(root=root, port=port, gather=gather, judge=overlay, home=home_page)


def overlay(artifact: Artifact) -> dict[str, Any]:
    """The live tier and what stands in its way."""
    from toolgate.packs.lra.checks import validate  # noqa: PLC0415 (the HTML parser, 40 ms, in the worker only)

    report = validate.validate(artifact)
    failing = [finding for finding in report.findings if validate.status_of(finding) == "fail"]
    return {
        "tier": report.tier,
        "passed": report.passed,
        "total": report.total,
        "failing": [
            {
                "rule": finding.rule,
                "message": finding.message,
                "file": finding.file,
                "line": finding.line,
                "fix": finding.fix,
            }
            for finding in failing[:MAX_SHOWN]
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
    items = "".join(_item(name, _title(files, f"{prefix}{name}", name)) for name in names[:MAX_PAPERS])
    more = f"<p>and {len(names) - MAX_PAPERS} more</p>" if len(names) > MAX_PAPERS else ""
    return _HOME.format(content=f"<ul>{items}</ul>{more}").encode()


def _item(name: str, title: str) -> str:
    return f'<li><a href="{quote(name)}/"><strong>{title}</strong><span>{escape(name)}/</span></a></li>'


def _title(files: ReadFiles, directory: str, name: str) -> str:
    """HTML: the title of the paper, or its name when it has none that can be read."""
    try:
        head = files.read_bytes(f"{directory}/index.html", max_bytes=MAX_TITLED_BYTES)
    except ToolError:
        return escape(name)
    found = _TITLE.search(head)
    text = " ".join(unescape(found[1].decode("utf-8", "replace")).split()) if found else ""
    return escape(text or name)


def text(data: dict[str, Any]) -> str:
    """Standard output in four lines; a list or a stop says what there is or was.

    Who called a tool has no terminal to press a key in, and an id instead.
    """
    if data.get("url"):
        stop = f'  Stop it with lra_serve {{"stop": "{data["id"]}"}}' if "id" in data else "  Press Ctrl+C to stop"
        lines = [f"  Serving at {data['url'].rstrip('/')}", stop, "  Watching for file changes..."]
        return "\n".join(["LRA Dev Server", *lines, ""])
    if "stopped" in data:
        return f"Stopped {data['stopped']}\n"
    running = [
        f"  {job['id']}  {job['url']}  {job['path']}{'  of ' + job['caller'] if 'caller' in job else ''}"
        for job in data["running"]
    ]
    return "\n".join(["LRA Dev Servers", *(running or ["  none running"]), ""])
