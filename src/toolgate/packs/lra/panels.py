"""What the console shows of the pack: the papers of the workspace, each with its receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ToolError
from toolgate.model.threads import in_thread
from toolgate.model.tool import Panel, PanelCell, PanelTable
from toolgate.packs.lra.receipts import verdict
from toolgate.packs.lra.receipts.receipt import ReceiptFault
from toolgate.packs.lra.receipts.view import receipt_in
from toolgate.packs.lra.resources import MAX_RECEIPT_BYTES, is_receipt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolgate.model.powers import ReadFiles
    from toolgate.model.tool import PanelContext, PanelValue

MOST: Final = 100
"""Papers, and receipts, that are looked for."""

Row = list["PanelValue"]
COLUMNS: Final = ("Receipt", "Paper", "Tier", "Result", "Verified at")


async def papers(ctx: PanelContext) -> Sequence[PanelTable]:
    receipts, pages = await in_thread(_found, ctx.files)
    return [
        PanelTable(
            "Papers", ["Page", "Receipts"], pages, note=f"The first {MOST} that are found.", tool="lra_validate"
        ),
        PanelTable(
            "Receipts",
            COLUMNS,
            receipts,
            note=f"The first {MOST} that are found. Whether one is signed, and by whom: lra verify-receipt.",
            tool="lra_verify",
        ),
    ]


def _found(files: ReadFiles) -> tuple[list[Row], list[Row]]:
    paths = [entry.path for entry in files.walk()]
    receipts = [path for path in paths if is_receipt(path)][:MOST]
    pages = [path for path in paths if path == "index.html" or path.endswith("/index.html")][:MOST]
    read = {path: _receipt(files, path) for path in receipts}
    counted: list[Row] = [[page, _receipts_of(page, read)] for page in pages]
    return list(read.values()), counted


def _receipts_of(page: str, receipts: Mapping[str, Row]) -> PanelTable:
    root = page.rpartition("/")[0]
    rows = [row for path, row in receipts.items() if _is_below(path.rpartition("/")[0], root)]
    return PanelTable(f"Receipts of {page}", COLUMNS, rows)


def _is_below(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(f"{root}/") or not root


def _receipt(files: ReadFiles, path: str) -> Row:
    """Read, not verified."""
    try:
        found = receipt_in(files.read_bytes(path, max_bytes=MAX_RECEIPT_BYTES))
    except (ToolError, ReceiptFault, ValueError, KeyError, TypeError):
        return [path, None, None, PanelCell("cannot be read", "bad"), None]
    word = verdict.word(found)
    shown = PanelCell(word, "good" if word == "passed" else "bad" if word == "failed" else "quiet")
    return [path, *(_text(found, name) for name in ("target_url", "compliance_tier")), shown, _text(found, "timestamp")]


def _text(receipt: dict[str, Any], name: str) -> str | None:
    value = receipt.get(name)
    return value if isinstance(value, str) else None


PANELS: Final = (
    Panel(
        name="papers",
        title="Papers",
        summary="Papers of the workspace, and the receipts that lie beside them.",
        make=papers,
    ),
)
