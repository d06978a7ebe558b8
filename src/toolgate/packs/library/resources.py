"""Papers and decision records of the workspace, at addresses: `paper:///drift/index.html`, `adr:///docs/adr/ADR-0001.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.model.offers import Listed, Resource, expand
from toolgate.model.tool import Result
from toolgate.packs.library.search.documents import MAX_DOCUMENT_BYTES, Kind, kind_of
from toolgate.packs.library.tools import FETCH, fetch

if TYPE_CHECKING:
    from toolgate.model.tool import Context


def _read(kind: Kind, ctx: Context, args: dict[str, Any]) -> Result:
    _require(kind, args["path"])
    return Result(data={"text": fetch(ctx, args).data["content"], "mimeType": _MIME[kind]})


def _require(kind: Kind, path: str) -> None:
    """One answer for `not a document` and `not there`: asking tells nothing about other files."""
    if kind_of(path) != kind:
        raise ToolError("FILE_NOT_FOUND", "the library has no such document", missing=True)


def _stamp(kind: Kind, ctx: Context, args: Mapping[str, Any]) -> str:
    _require(kind, args["path"])
    return sha256(ctx.files.read_bytes(args["path"], max_bytes=MAX_DOCUMENT_BYTES)).hexdigest()


def _paths(kind: Kind, ctx: Context) -> list[str]:
    return [file.path for file in ctx.files.walk() if kind_of(file.path) == kind]


def _listed(kind: Kind, template: str, ctx: Context) -> list[Listed]:
    return [Listed(expand(template, {"path": path}), path[:256]) for path in _paths(kind, ctx)]


def _completed(kind: Kind, ctx: Context, others: Mapping[str, str]) -> Sequence[str]:  # noqa: ARG001 (one argument)
    return _paths(kind, ctx)


_MIME: Final[Mapping[Kind, str]] = {"paper": "text/html", "adr": "text/markdown"}


def _resource(kind: Kind, name: str, scheme: str, summary: str) -> Resource:
    template = f"{scheme}:///{{+path}}"
    return Resource(
        name=name,
        id=f"library.{name}",
        uri=template,
        summary=summary,
        run=partial(_read, kind),
        mime_type=_MIME[kind],
        input_schema=FETCH.input_schema,
        listed=partial(_listed, kind, template),
        stamp=partial(_stamp, kind),
        completes={"path": partial(_completed, kind)},
        error_codes=FETCH.error_codes,
    )


RESOURCES: Final = (
    _resource("adr", "decision_record", "adr", "A decision record (ADR) of the workspace, as Markdown."),
    _resource("paper", "paper", "paper", "A paper of the workspace, as HTML."),
)
