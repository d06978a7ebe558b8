"""References from .bib and other files.

The quick way: the citation processor reads a .bib file itself, and its keys are found here by a look at the text. When anything
at all is wrong, the build is made again the thorough way: Pandoc reads the file as a document, while it reads the text, so that
every entry can be looked at; only those that are cited go on.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

from toolgate.packs.lra.build.convert import Converter, Pending, from_json
from toolgate.packs.lra.build.document import ast
from toolgate.packs.lra.build.document.meta import plain_text
from toolgate.packs.lra.build.faults import SourceFaults, SourcePlace
from toolgate.packs.lra.build.source import MAX_SOURCE_BYTES, Read

DEFAULT: Final = "references.bib"
"""Taken when it is there and the front matter names none."""
FORMS: Final = {
    ".bib": "biblatex",
    ".bibtex": "bibtex",
    ".json": "csljson",
    ".ris": "ris",
    ".xml": "endnotexml",
}
_ERROR_LINE: Final = re.compile(r"\(line (\d+), column \d+\):?\s*(.*)", re.DOTALL)
_KEY: Final = re.compile(r"@\s*(?!string|comment|preamble)\w+\s*[{(]\s*([^\s,{}()\"]+)\s*,", re.IGNORECASE)
_DOI_URL: Final = re.compile(rb"(\bdoi\s*=\s*[{\"]\s*)(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", re.IGNORECASE)
_DOI: Final = re.compile(r"^(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", re.IGNORECASE)


class Bibliography:
    def __init__(self, pandoc: Converter, read: Read, base: str, *, quick: bool = False) -> None:
        self.pandoc = pandoc
        self.read = read
        self.base = base
        """The directory of the source."""
        self.quick = quick
        self.pending: dict[str, Pending] = {}
        self.texts: dict[str, str] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        """References by key, as Pandoc's metadata has them."""
        self.origins: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        """For the citation processor, by names that the author did not choose. Only the quick way has any."""
        self.seen: dict[str, str] = {}
        """Keys in these files, and where they were seen."""

    def start(self, names: tuple[str, ...], place: SourcePlace | None, faults: SourceFaults) -> None:
        """Side effect: Pandoc starts to read what it has not read yet. `place` is None for a name nobody wrote."""
        for name in names:
            path = posixpath.normpath(posixpath.join(self.base, name))
            if path in self.texts:
                continue
            form = FORMS.get(posixpath.splitext(name)[1].lower())
            data = self.read(path, MAX_SOURCE_BYTES) if form else None
            if data is not None and form:
                self.texts[path] = data.decode("utf-8", "replace")
                if self.quick and form in {"biblatex", "bibtex"}:
                    self._look(path, data, faults)
                else:
                    self.pending[path] = self.pandoc.start([f"--from={form}", "--to=json"], data)
            elif place is not None and form:
                faults.add(place, f"there is no bibliography {name}")
            elif place is not None:
                faults.add(place, f"{name} is not a bibliography: {', '.join(FORMS)}")

    def _look(self, path: str, data: bytes, faults: SourceFaults) -> None:
        self.files[f"{len(self.files)}{posixpath.splitext(path)[1].lower()}"] = _DOI_URL.sub(rb"\1", data)
        for key in _KEY.findall(self.texts[path]):
            if key in self.seen:
                faults.add(self._place(key, path, nth=1), f"the key {key} stands twice")
            self.seen[key] = path

    def known(self) -> set[str]:
        return {*self.entries, *self.seen}

    def finish(self, faults: SourceFaults) -> None:
        """Raises: ToolError UNAVAILABLE."""
        for path, pending in self.pending.items():
            done = pending.result()
            if done.error:
                match = _ERROR_LINE.search(done.error)
                place = SourcePlace(path, int(match[1]) if match else 0)
                faults.add(
                    place, f"the bibliography cannot be read: {' '.join((match[2] if match else done.error).split())}"
                )
                continue
            self.include(from_json(done.data)["meta"].get("references"), path, faults)

    def include(self, references: dict[str, Any] | None, path: str, faults: SourceFaults) -> None:
        """References as Pandoc's metadata has them: from a file it read, or from the front matter."""
        for entry in references["c"] if references is not None and references["t"] == "MetaList" else []:
            self._add(entry["c"], path, faults)

    def _add(self, fields: dict[str, Any], path: str, faults: SourceFaults) -> None:
        key = plain_text(fields.get("id"))
        if key in self.entries:
            faults.add(self._place(key, path, nth=1), f"the key {key} stands twice")
        for name in ("doi", "DOI"):
            if name in fields:
                fields[name] = {"t": "MetaString", "c": _DOI.sub("", plain_text(fields[name]))}
        self.entries[key] = fields
        self.origins[key] = path

    def _place(self, key: str, path: str, nth: int = 0) -> SourcePlace:
        text = self.texts.get(path, "")
        found = [match.start() for match in re.finditer(rf"[{{\"]\s*{re.escape(key)}\s*[,\"]", text)]
        return (
            SourcePlace(path, text.count("\n", 0, found[min(nth, len(found) - 1)]) + 1) if found else SourcePlace(path)
        )

    def chosen(self, keys: list[str], faults: SourceFaults) -> list[dict[str, Any]]:
        """The cited ones, as metadata. TeX that has no plain form in one of them is a fault."""
        found = []
        for key in keys:
            if key not in self.entries:
                continue  # in a file that the citation processor reads
            fields = self.entries[key]
            raw = next((raw for value in fields.values() for raw in ast.each(value, "RawInline")), None)
            if raw is not None:
                what = f"the reference {key} has TeX that cannot be shown: {raw['c'][1][:40]}"
                faults.add(self._place(key, self.origins[key]), what)
            found.append({"t": "MetaMap", "c": fields})
        return found
