"""`library_search` and `library_fetch`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError, ToolgateError
from toolgate.kit.paths import plain
from toolgate.kit.reports.printable import printable
from toolgate.model import strictjson
from toolgate.model.threads import in_thread
from toolgate.model.tool import Limit, Result, Tool
from toolgate.packs.library.search.documents import KINDS, MAX_DOCUMENT_BYTES, MAX_TITLE, kind_of
from toolgate.packs.library.search.index import Index
from toolgate.packs.library.search.index import search as find
from toolgate.packs.library.search.refresh import contents_of, refresh
from toolgate.packs.library.search.snippets import MAX_SNIPPET, snippets
from toolgate.packs.library.search.words import keys_of

if TYPE_CHECKING:
    from toolgate.model.clock import Clock
    from toolgate.model.tool import Context

MAX_PATH: Final = 1024
MAX_QUERY: Final = 256
"""Characters: a sentence."""
MAX_HITS: Final = 10
MAX_WORDS: Final = 32
"""Different words of a query: a long sentence."""
SEARCH_SECONDS: Final = 2.0
"""Five times what the largest library and the longest query take."""
SNIPPET_SECONDS: Final = 2.0
_ESCAPED: Final = 6
"""A character that is spelt out (`\\u202e`) takes six."""


def search_again(clock: Clock, index: Index, args: dict[str, Any]) -> Result | None:
    """What was asked before, if nothing has changed since."""
    known = index.answered(strictjson.dumps_sorted(args))
    return Result(data=known) if known is not None and index.is_current(clock.monotonic()) else None


async def search(ctx: Context, args: dict[str, Any]) -> Result:
    keys = await in_thread(_keys_of, args["query"])
    index: Index = ctx.memory
    await refresh(ctx, index)
    tree = index.tree
    filters = args.get("filters", {})
    narrowed = {"kind": filters.get("kind"), "under": filters.get("path", "")}
    due = ctx.clock.monotonic() + SEARCH_SECONDS
    hits = await in_thread(find, index.documents(), keys, is_late=lambda: ctx.clock.monotonic() > due, **narrowed)
    wanted = hits[: args.get("topK", MAX_HITS)]
    passages = await _snippets(ctx, args["query"], [hit.path for hit in wanted])
    data: dict[str, Any] = {
        "query": args["query"],
        "total": len(hits),
        "hits": [
            {
                "id": hit.id,
                "score": hit.score,
                "rank": rank,
                # Strangers' text: what could turn a terminal or hide a word is spelt out.
                "document": {
                    "title": printable(hit.title[:MAX_TITLE]),
                    "snippet": printable(passages.get(hit.path, "")[:MAX_SNIPPET]),
                    "sourcePath": hit.path,
                },
            }
            for rank, hit in enumerate(wanted, start=1)
        ],
    }
    left_out = {"skipped": index.skipped, "pending": index.pending}
    data |= {name: count for name, count in left_out.items() if count}
    if not index.pending and (passages or not wanted):
        index.keep(strictjson.dumps_sorted(args), data, tree)
    return Result(data=data)


def fetch(ctx: Context, args: dict[str, Any]) -> Result:
    there = ctx.files.is_file(args["path"])  # refuses what is not a path inside the workspace
    path = plain(args["path"])
    kind = kind_of(path)
    # One answer for `not a document` and `not there`: asking tells nothing about other files.
    if kind is None or not there:
        raise ToolError("FILE_NOT_FOUND", "the library has no such document", missing=True)
    data = ctx.files.read_bytes(path, max_bytes=MAX_DOCUMENT_BYTES)
    content = _text_of(data)
    return Result(
        data={
            "path": path,
            "kind": kind,
            "sha256": sha256(data).hexdigest(),
            "bytes": len(data),
            "content": content,
        }
    )


def _keys_of(query: str) -> Sequence[int]:
    """Raises: ToolError INVALID_INPUT: more words than anybody asks for; each is looked for in every document."""
    keys = keys_of(query)
    if len(keys) > MAX_WORDS:
        fault = f"a query has at most {MAX_WORDS} different words; leave out the common ones"
        where = {"pointer": "/query", "keyword": "tool", "reason": "too_many_words", "message": fault}
        raise ToolError("INVALID_INPUT", fault, data={"reason": "too_many_words", "errors": [where]})
    return keys


async def _snippets(ctx: Context, query: str, paths: Sequence[str]) -> Mapping[str, str]:
    """A search is answered without them rather than not at all: workers may be busy with others' documents."""
    if not paths:
        return {}
    contents = await in_thread(contents_of, ctx.files, paths)
    try:
        async with asyncio.timeout(SNIPPET_SECONDS):
            return await ctx.compute(snippets, (query, contents), timeout_s=SNIPPET_SECONDS)
    except (TimeoutError, ToolgateError):
        return {}


def _text_of(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolError("NOT_TEXT", "the document is not UTF-8 text; its author must save it as such")
    return text


_PATH: Final = {"type": "string", "minLength": 1, "maxLength": MAX_PATH}

SEARCH: Final = Tool(
    name="library_search",
    id="library.search",
    summary="Search the workspace's papers, decision records (ADR) and Markdown by plain words; library_fetch reads a hit.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY,
                "description": f"At most {MAX_WORDS} plain words. Finds documents with all of them, else with any.",
            },
            "topK": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_HITS,
                "default": MAX_HITS,
                "description": "Hits at most.",
            },
            "filters": {
                "type": "object",
                "additionalProperties": False,
                "description": "Narrow the search.",
                "properties": {
                    "kind": {"type": "string", "enum": list(KINDS), "description": "Only this kind."},
                    "path": {
                        **_PATH,
                        "x-reason": "invalid_path",
                        "description": "Only below this directory.",
                    },
                },
            },
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["query", "total", "hits"],
        "properties": {
            "query": {"type": "string", "maxLength": MAX_QUERY},
            "total": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            "skipped": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000,
                "description": "Files that could not be searched: not UTF-8 text, too large, never read to the end, or no room.",
            },
            "pending": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1_000_000,
                "description": "Files that were not read in time; search again to have them searched as well.",
            },
            "hits": {
                "type": "array",
                "maxItems": MAX_HITS,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["id", "score", "rank", "document"],
                    "properties": {
                        "id": {"type": "string", "pattern": "^[0-9a-f]{16}$", "maxLength": 16},
                        "score": {"type": "number", "minimum": -1_000_000, "maximum": 1_000_000},
                        "rank": {"type": "integer", "minimum": 1, "maximum": MAX_HITS},
                        "document": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["title", "snippet", "sourcePath"],
                            "properties": {
                                "title": {"type": "string", "maxLength": MAX_TITLE * _ESCAPED},
                                "snippet": {"type": "string", "maxLength": MAX_SNIPPET * _ESCAPED},
                                "sourcePath": {"type": "string", "maxLength": MAX_PATH},
                            },
                        },
                    },
                },
            },
        },
    },
    effect="read",
    deadline_s=10.0,
    at_once=search_again,
    run=search,
    error_codes=("FILE_TOO_LARGE", "FILE_NOT_FOUND", "IO_ERROR", "INVALID_PATH"),
)

FETCH: Final = Tool(
    name="library_fetch",
    id="library.fetch",
    summary="Read one document of the workspace (a paper, decision record, Markdown or text file) with its SHA-256.",
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["path"],
        "properties": {
            "path": {**_PATH, "x-reason": "invalid_path", "description": "As in sourcePath of library_search."}
        },
    },
    output_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["path", "kind", "sha256", "bytes", "content"],
        "properties": {
            "path": {"type": "string", "maxLength": MAX_PATH},
            "kind": {"type": "string", "enum": list(KINDS)},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "maxLength": 64},
            "bytes": {"type": "integer", "minimum": 0, "maximum": MAX_DOCUMENT_BYTES},
            "content": {"type": "string", "maxLength": MAX_DOCUMENT_BYTES},
        },
    },
    effect="read",
    deadline_s=10.0,
    run=fetch,
    error_codes=("FILE_NOT_FOUND", "FILE_TOO_LARGE", "INVALID_PATH", "IO_ERROR", "NOT_TEXT"),
    text=lambda data: data["content"],
)

TOOLS: Final = (FETCH, SEARCH)
LIMITS: Final = (Limit("MAX_WORDS", MAX_WORDS, "Different words of a query: a long sentence.", "400 `too_many_words`"),)
