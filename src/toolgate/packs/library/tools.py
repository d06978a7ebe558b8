"""`library_search` and `library_fetch`."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.kit.render import printable
from toolgate.model.tool import Result, Tool
from toolgate.packs.library.documents import KINDS, MAX_DOCUMENT_BYTES, MAX_TITLE, kind_of, read_documents
from toolgate.packs.library.index import MAX_SNIPPET, Hit, Index, Stamp

if TYPE_CHECKING:
    from toolgate.model.powers import ReadFiles
    from toolgate.model.tool import Context

MAX_PATH: Final = 1024
MAX_QUERY: Final = 256
"""Characters: a sentence."""
MAX_HITS: Final = 10
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Sent to a worker at once: bounds memory while a large library is read for the first time."""
MAX_INDEXES: Final = 4
"""Workspaces with an index in this process. A server has one."""
_ESCAPED: Final = 6
"""A character that is spelt out (`\\u202e`) takes six."""

_indexes: OrderedDict[ReadFiles, Index] = OrderedDict()


async def search(ctx: Context, args: dict[str, Any]) -> Result:
    index = _index_of(ctx.files)
    await _refresh(ctx, index)
    hits, skipped = await asyncio.to_thread(_found, index, args["query"], args.get("filters", {}))
    wanted = hits[: args.get("topK", MAX_HITS)]
    data: dict[str, Any] = {
        "query": args["query"],
        "total": len(hits),
        "hits": [
            {
                "id": hit.id,
                "score": hit.score,
                "rank": rank,
                # Strangers' text: what could turn a terminal or hide a word is spelt out.
                "document": {"title": printable(hit.title), "snippet": printable(hit.snippet), "sourcePath": hit.path},
            }
            for rank, hit in enumerate(wanted, start=1)
        ],
    }
    if skipped:
        data["skipped"] = skipped
    return Result(data=data)


def fetch(ctx: Context, args: dict[str, Any]) -> Result:
    there = ctx.files.is_file(args["path"])  # refuses what is no path inside the workspace
    path = "/".join(part for part in args["path"].split("/") if part not in ("", "."))
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


def _found(index: Index, query: str, filters: Mapping[str, Any]) -> tuple[list[Hit], int]:
    return index.search(query, kind=filters.get("kind"), under=filters.get("path", "")), index.skipped()


def _text_of(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ToolError("NOT_TEXT", "the document is not UTF-8 text; its author must save it as such")
    return text


def _index_of(files: ReadFiles) -> Index:
    """The index of this workspace; the oldest of too many goes."""
    index = _indexes.get(files)
    if index is None:
        index = _indexes[files] = Index()
        while len(_indexes) > MAX_INDEXES:
            _indexes.popitem(last=False)
    return index


async def _refresh(ctx: Context, index: Index) -> None:
    """Make the index equal to the files. Two searches at once may both do it: the result is the same."""
    present = await asyncio.to_thread(_documents_in, ctx.files)
    for batch in _batches(await asyncio.to_thread(index.changed, present), present):
        contents = await asyncio.to_thread(_contents, ctx.files, batch)
        documents = await ctx.compute(read_documents, contents)
        await asyncio.to_thread(index.put, {path: present[path] for path in batch}, documents)


def _documents_in(files: ReadFiles) -> dict[str, Stamp]:
    return {one.path: Stamp(one.size, one.modified) for one in files.walk() if kind_of(one.path) is not None}


def _batches(paths: Sequence[str], stamps: Mapping[str, Stamp]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and size + stamps[path].size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += min(stamps[path].size, MAX_DOCUMENT_BYTES)
    if batch:
        yield batch


def _contents(files: ReadFiles, paths: Sequence[str]) -> list[tuple[str, bytes]]:
    found = []
    for path in paths:
        try:
            found.append((path, files.read_bytes(path, max_bytes=MAX_DOCUMENT_BYTES)))
        except ToolError:
            continue
    return found


_PATH: Final = {"type": "string", "minLength": 1, "maxLength": MAX_PATH}

SEARCH: Final = Tool(
    name="library_search",
    id="library.search",
    summary=(
        "Search the workspace's papers, decision records (ADR) and Markdown by plain words. Returns the best matches "
        "with title, snippet and path; read one with library_fetch."
    ),
    input_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY,
                "description": "Plain words. Documents with all of them are found; if there is none, with any of them.",
            },
            "topK": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_HITS,
                "default": MAX_HITS,
                "description": "How many hits to return.",
            },
            "filters": {
                "type": "object",
                "additionalProperties": False,
                "description": "Narrow the search.",
                "properties": {
                    "kind": {"type": "string", "enum": list(KINDS), "description": "Only documents of this kind."},
                    "path": {
                        **_PATH,
                        "x-reason": "invalid_path",
                        "description": "Only documents below this directory.",
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
                "description": "Files that could not be searched: not UTF-8 text, too large, or no room.",
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
