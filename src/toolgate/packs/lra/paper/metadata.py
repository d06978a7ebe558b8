"""One source for everything a paper says about itself: HTML head, JSON-LD, CITATION.cff, BibTeX, RIS, APA."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Final, NamedTuple

from toolgate.errors import ToolError
from toolgate.packs.lra.paper.licences import LICENCES

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORCID: Final = re.compile(r"[0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{3}[0-9X]")
_DATE: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


class Author(NamedTuple):
    family: str
    """The family name, or the whole name of an entity (then `given` is empty)."""
    given: str = ""
    orcid: str = ""
    """`0000-0002-1825-0097`, or nothing."""

    @property
    def name(self) -> str:
        return f"{self.given} {self.family}" if self.given else self.family


class Metadata(NamedTuple):
    slug: str
    """Directory name; the BibTeX key is made from it."""
    title: str
    authors: tuple[Author, ...]
    date: str
    """`2026-11-15`."""
    licence: str
    description: str
    abstract: str
    keywords: tuple[str, ...] = ()
    capability: str = ""
    """The name of the tool on the page; nothing when there is none."""
    url: str = ""
    lang: str = "en"
    extra_head: tuple[str, ...] = ()

    @property
    def year(self) -> str:
        return self.date[:4]


def author(text: str, orcid: str = "") -> Author:
    """`Jane Q. Doe`, `Doe, Jane Q.`, or one word for an entity.

    Raises: ToolError INVALID_METADATA: the name is blank or the ORCID iD is malformed or fails its check digit.
    """
    name = " ".join(text.split())
    if not name:
        raise ToolError("INVALID_METADATA", "an author has a name")
    if orcid:
        orcid = orcid.removeprefix("https://orcid.org/")
        if not _ORCID.fullmatch(orcid) or not _orcid_checks(orcid):
            raise ToolError("INVALID_METADATA", "an ORCID iD is 0000-0000-0000-0000 with a correct last digit")
    family, comma, given = name.partition(", ")
    if not comma:
        given, _, family = name.rpartition(" ")
    return Author(family, given, orcid)


def _orcid_checks(orcid: str) -> bool:
    """ISO 7064 MOD 11-2 over the first fifteen digits."""
    total = 0
    for digit in orcid.replace("-", "")[:-1]:
        total = (total + int(digit)) * 2
    check = (12 - total % 11) % 11
    return orcid[-1] == ("X" if check == 10 else str(check))


def require_date(text: str) -> str:
    if not _DATE.fullmatch(text):
        raise ToolError("INVALID_METADATA", "a date is written 2026-11-15")
    return text


def head(meta: Metadata) -> str:
    """The meta elements that repeat the metadata, one a line."""
    rows = [
        ("name", "author", ", ".join(creator.name for creator in meta.authors)),
        ("property", "og:title", meta.title),
        ("property", "og:description", meta.description),
        ("property", "og:type", "article"),
        *([("property", "og:url", meta.url)] if meta.url else []),
        ("name", "lra:version", "1.0"),
        ("name", "lra:license", meta.licence),
        ("name", "lra:abstract", meta.abstract),
        ("name", "lra:keywords", ", ".join(meta.keywords)),
        *([("name", "lra:capability", meta.capability)] if meta.capability else []),
        ("name", "citation_title", meta.title),
        *(("name", "citation_author", creator.name) for creator in meta.authors),
        ("name", "citation_publication_date", meta.date.replace("-", "/")),
    ]
    return "\n".join(f'<meta {key}="{name}" content="{escape(value)}">' for key, name, value in rows)


def json_ld(meta: Metadata) -> str:
    """schema.org ScholarlyArticle. `<` is escaped so that no title can close the script element."""
    authors = []
    for creator in meta.authors:
        person: dict[str, str] = {"@type": "Person" if creator.given else "Organization", "name": creator.name}
        if creator.orcid:
            person["@id"] = f"https://orcid.org/{creator.orcid}"
        authors.append(person)
    value = {
        "@context": "https://schema.org",
        "@type": "ScholarlyArticle",
        "name": meta.title,
        "headline": meta.title,
        "author": authors,
        "datePublished": meta.date,
        "abstract": meta.abstract,
        "inLanguage": meta.lang,
        "keywords": list(meta.keywords),
        "license": LICENCES[meta.licence].url,
        **({"url": meta.url} if meta.url else {}),
    }
    lines = ",\n".join(f'"{key}": {_json(given)}' for key, given in value.items())
    return f"{{\n{lines}\n}}".replace("<", "\\u003c")


def citation_cff(meta: Metadata) -> str:
    """Citation File Format 1.2.0. Values are JSON strings, which are YAML strings of one meaning only."""
    lines = [
        "cff-version: 1.2.0",
        "message: If you use this work, please cite it as below.",
        f"title: {_quoted(meta.title)}",
        "authors:",
        *_cff_authors(meta, "  "),
        f"date-released: {_quoted(meta.date)}",
        f"license: {meta.licence}",
        f"abstract: {_quoted(meta.abstract)}",
        *(["keywords:", *(f"  - {_quoted(word)}" for word in meta.keywords)] if meta.keywords else []),
        *([f"url: {_quoted(meta.url)}"] if meta.url else []),
        "preferred-citation:",
        "  type: article",
        f"  title: {_quoted(meta.title)}",
        "  authors:",
        *_cff_authors(meta, "    "),
        f"  year: {int(meta.year)}",
        "",
    ]
    return "\n".join(lines)


def _cff_authors(meta: Metadata, indent: str) -> list[str]:
    lines = []
    for creator in meta.authors:
        if creator.given:
            lines += [
                f"{indent}- family-names: {_quoted(creator.family)}",
                f"{indent}  given-names: {_quoted(creator.given)}",
            ]
        else:
            lines.append(f"{indent}- name: {_quoted(creator.family)}")
        if creator.orcid:
            lines.append(f'{indent}  orcid: "https://orcid.org/{creator.orcid}"')
    return lines


def _quoted(text: str) -> str:
    return _json(text)


_TEX: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "%": r"\%",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def bibtex(meta: Metadata) -> str:
    key = re.sub(r"[^a-z0-9]+", "-", f"{meta.authors[0].family}-{meta.year}-{meta.slug}".lower()).strip("-")
    # An entity in braces stays one name; a person is written family first.
    names = [
        f"{creator.family.translate(_TEX)}, {creator.given.translate(_TEX)}"
        if creator.given
        else f"{{{creator.family.translate(_TEX)}}}"
        for creator in meta.authors
    ]
    rows = [
        ("title", f"{{{meta.title.translate(_TEX)}}}"),
        ("author", " and ".join(names)),
        ("year", meta.year),
        ("note", f"Living Research Artifact, {meta.licence}"),
        *([("url", meta.url)] if meta.url else []),
    ]
    body = ",\n".join(f"  {name} = {{{value}}}" for name, value in rows)
    return f"@misc{{{key},\n{body}\n}}"


def ris(meta: Metadata) -> str:
    rows = [
        ("TY", "GEN"),
        ("TI", meta.title),
        *(
            ("AU", f"{creator.family}, {creator.given}" if creator.given else creator.family)
            for creator in meta.authors
        ),
        ("PY", meta.year),
        ("DA", meta.date.replace("-", "/")),
        ("AB", meta.abstract),
        *(("KW", word) for word in meta.keywords),
        *([("UR", meta.url)] if meta.url else []),
        ("ER", ""),
    ]
    return "\n".join(f"{tag}  - {' '.join(value.split())}" for tag, value in rows)


def apa(meta: Metadata) -> str:
    names = [_apa_name(creator) for creator in meta.authors]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, & {names[-1]}"
    year, month, day = meta.date.split("-")
    end = f" {meta.url}" if meta.url else ""
    full_stop = "" if listed.endswith(".") else "."
    title_end = "" if meta.title.endswith((".", "?", "!")) else "."
    return f"{listed}{full_stop} ({year}, {MONTHS[int(month) - 1]} {int(day)}). {meta.title}{title_end}{end}"


def _apa_name(creator: Author) -> str:
    if not creator.given:
        return creator.family
    initials = " ".join(f"{word[0]}." for word in re.split(r"[\s.]+", creator.given) if word)
    return f"{creator.family}, {initials}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
