"""Licence texts: recognising a full text by its words, and writing one verbatim (ADR-0011).

A text is recognised by a digest of the words between its first and last sentence, so that titles, copyright lines,
line breaks, quotation marks and appended instructions do not matter, and one changed word does.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pkgutil import get_data
from typing import Final, NamedTuple

from toolgate.later import later

MAX_WORDS_AROUND: Final = 900
"""Words before and after the licence itself: the longest appendix of a known text has about 500."""

_SHA256: Final = later("hashlib:sha256")
_WORD: Final = re.compile(r"[a-z0-9]+")


class Licence(NamedTuple):
    spdx: str
    """The id the scaffold writes."""
    name: str
    url: str
    agrees: frozenset[str]
    """SPDX ids a citation file may give beside this text."""
    first: str
    last: str
    digest: str
    """SHA-256 of the words from `first` to `last`, joined by single blanks."""


def _licence(spdx: str, name: str, url: str, first: str, last: str, digest: str, *more: str) -> Licence:
    return Licence(spdx, name, url, frozenset({spdx, *more}), first, last, digest)


_GNU_END: Final = "end of terms and conditions"
_CC_FIRST: Final = "by exercising the licensed rights defined below"
_CC_LAST: Final = "legal processes of any jurisdiction or authority"

LICENCES: Final[dict[str, Licence]] = {
    licence.spdx: licence
    for licence in (
        _licence(
            "GPL-3.0-or-later",
            "GNU General Public License v3.0 or later",
            "https://www.gnu.org/licenses/gpl-3.0.html",
            "the gnu general public license is a free copyleft license",
            _GNU_END,
            "e7a6dc0d8e5f88e3ab131bbe3511b4b47195837dd336174093ed9da084a3acc5",
            "GPL-3.0-only",
        ),
        _licence(
            "AGPL-3.0-or-later",
            "GNU Affero General Public License v3.0 or later",
            "https://www.gnu.org/licenses/agpl-3.0.html",
            "the gnu affero general public license is a free copyleft license",
            _GNU_END,
            "404e94ffdf02887eb1e5d2d3cc44e16d4a1b92798ec9ad4fd7580b10fd37a3a6",
            "AGPL-3.0-only",
        ),
        _licence(
            "Apache-2.0",
            "Apache License 2.0",
            "https://www.apache.org/licenses/LICENSE-2.0",
            "terms and conditions for use reproduction and distribution",
            _GNU_END,
            "d8221a4f10c01c6fa5390685929a5ce31d7264a024162fd3dd4d805c57ce0f43",
        ),
        _licence(
            "MIT",
            "MIT License",
            "https://opensource.org/license/mit",
            "permission is hereby granted free of charge",
            "other dealings in the software",
            "0cf21bdfd1964a97a8615e128534845826afbc887edc95aa5c925cbf64386b5c",
        ),
        _licence(
            "BSD-3-Clause",
            "BSD 3-Clause License",
            "https://opensource.org/license/bsd-3-clause",
            "redistribution and use in source and binary forms",
            "possibility of such damage",
            "9b83d3dee0616d07b82a272dd9bf5134a9f402b750f5ee6188458073b0a32ff2",
        ),
        _licence(
            "MPL-2.0",
            "Mozilla Public License 2.0",
            "https://www.mozilla.org/MPL/2.0/",
            "1 definitions 1 1 contributor",
            "defined by the mozilla public license v 2 0",
            "c0f855aacb6ac1c86bcdd1334db61014d14898798ae14888fea5446cbb9d32e3",
        ),
        _licence(
            "CC-BY-4.0",
            "Creative Commons Attribution 4.0 International",
            "https://creativecommons.org/licenses/by/4.0/",
            _CC_FIRST,
            _CC_LAST,
            "2a9af02cf007e4aca5acda7f284739cc6ea010a49aad741b9334e0ed132d20e2",
        ),
        _licence(
            "CC-BY-SA-4.0",
            "Creative Commons Attribution-ShareAlike 4.0 International",
            "https://creativecommons.org/licenses/by-sa/4.0/",
            _CC_FIRST,
            _CC_LAST,
            "7a3fd469c2fbf39c0f7bc6efbeab322bd642877ef75e6792af1f0dd4423e6f88",
        ),
        _licence(
            "CC0-1.0",
            "Creative Commons Zero v1.0 Universal",
            "https://creativecommons.org/publicdomain/zero/1.0/",
            "statement of purpose the laws of most jurisdictions",
            "with respect to this cc0 or use of the work",
            "4f8ab63ace774f37529081c81e2730a88143bf70e67392bd3c3701bd0a175152",
        ),
    )
}
DEFAULT: Final = "GPL-3.0-or-later"


@lru_cache(maxsize=4)
def recognise(text: str) -> Licence | None:
    """The licence whose full text this is."""
    words = " ".join(_WORD.findall(text.lower().replace("https", "http")))
    for licence in LICENCES.values():
        start = words.find(licence.first)
        end = words.rfind(licence.last)
        if start < 0 or end < start:
            continue
        body = words[start : end + len(licence.last)]
        around = words[:start].count(" ") + words[end:].count(" ")
        if _SHA256(body.encode()).hexdigest() == licence.digest and around <= MAX_WORDS_AROUND:
            return licence
    return None


@cache
def _shipped(spdx: str) -> str:
    found = get_data("toolgate.packs.lra", f"data/licences/{spdx}.txt")
    if found is None:  # a loader that has no files
        raise KeyError(spdx)
    return found.decode()


def text_of(spdx: str, *, year: str, holder: str) -> str:
    """The verbatim text to write as LICENSE; texts with a copyright line get year and holder. Raises: KeyError."""
    text = _shipped(LICENCES[spdx].spdx)
    for gap in ("<copyright holders>", "<owner>"):
        text = text.replace(gap, holder)
    return text.replace("<year>", year) if spdx in ("MIT", "BSD-3-Clause") else text
