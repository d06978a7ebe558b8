"""What Pandoc had to say, as faults of the source: it warns and goes on where a paper must not."""

from __future__ import annotations

import re
from typing import Any, Final

from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.document.tex import read_raw_tex
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.build.source import Source
from toolgate.packs.lra.build.words import THEOREMS

_QUIET: Final = frozenset(
    {
        "MacroAlreadyDefined",
        "Fetching",
        "Extracting",
        "NoTitleElement",
        "LoadedResource",
        "ScriptingInfo",
        "RunningFilter",
    }
    | {"FilterCompleted", "Deprecated", "NotUTF8Encoded", "MakePDFInfo", "MakePDFWarning", "CouldNotDetermineMimeType"}
    | {"CouldNotDetermineImageSize", "IgnoredElement", "DocxParserWarning", "NoLangSpecified", "MissingCharacter"}
    | {"AssumingFormat", "UnusualConversion", "UnexpectedXmlElement", "TemplateWarning"}
)
"""About the program's own doings, or told better elsewhere."""
_TOLD: Final = frozenset({"SkippedContent", "InlineNotRendered", "BlockNotRendered"})
"""Content that would be left out; Pandoc counts these as information only."""

_KEPT: Final = frozenset(
    {
        *THEOREMS,
        "proof",
        "claim",
        "evidence",
        "demo",
        "thebibliography",
        "center",
        "flushleft",
        "flushright",
        "samepage",
    }
    | {"small", "footnotesize", "landscape", "singlespace", "doublespace", "spacing", "titlepage", "document"}
)
"""LaTeX environments whose inside stays: what they mean is known, or they only move it about."""


def reading(document: Document, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        kind = message["type"]
        if kind in _QUIET or (message["verbosity"] != "WARNING" and kind not in _TOLD):
            continue
        place, text = _place(document.source, message), message["pretty"]
        if kind == "SkippedContent":
            if not _matters(message.get("contents", "")):
                continue
            text = f"this cannot be shown: {message.get('contents', '').strip()[:60]}"
        document.fault(place, _without_position(text))


def writing(document: Document, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        kind = message["type"]
        if kind == "CouldNotConvertTeXMath":
            document.fault(_formula_place(document, message), f"this formula cannot be shown: {_reason(message)}")
        elif kind == "CiteprocWarning" and "not found" in message["pretty"]:
            continue  # told before, with its line
        elif kind in {"InlineNotRendered", "BlockNotRendered"} or (
            message["verbosity"] == "WARNING" and kind not in _QUIET
        ):
            document.fault(_place(document.source, message), _without_position(message["pretty"]))


def _matters(skipped: str) -> bool:
    """Whether a command that Pandoc left out says anything to a reader of a page."""
    text = skipped.strip()
    if text.startswith("\\bibitem"):
        return False  # told once, for the whole environment
    environment = re.match(r"\\(?:begin|end)\{([^{}]*)\}", text)
    if environment:
        return environment[1].rstrip("*") not in _KEPT
    return bool(read_raw_tex(text).unknown) if text.startswith("\\") else bool(text)


def _place(source: Source, message: dict[str, Any]) -> SourcePlace:
    line = message.get("line") or message.get("openpos", {}).get("line")
    return source.origin(line) if line else SourcePlace(source.file)


def _without_position(text: str) -> str:
    return " ".join(re.sub(r"\s+(?:at|in) (?:chunk )?(?:\S+ )?\(?line \d+,? column \d+\)?", "", text).split())


def _formula_place(document: Document, message: dict[str, Any]) -> SourcePlace:
    """A formula was trimmed and turned on its way: its longest line is still the author's, or the command that was not known."""
    tex = message["contents"]
    lines = sorted((line.strip() for line in re.split(r"\n|\\(?:begin|end)\{\w+\}", tex)), key=len, reverse=True)
    command = re.search(r"control sequence (\\[A-Za-z]+)", message.get("message", ""))
    for needle in (tex.strip(), *(line for line in lines if line), command[1] if command else ""):
        if needle and document.source.offsets(re.escape(needle)):
            return document.place(needle)
    return SourcePlace(document.source.file)


def _reason(message: dict[str, Any]) -> str:
    lines = [line.strip() for line in message.get("message", "").split("\n")]
    said = next((line for line in lines if line.startswith("unexpected")), "")
    return said or "it is not TeX mathematics"
