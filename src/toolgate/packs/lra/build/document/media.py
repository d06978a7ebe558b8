"""Files that the page shows or links: found beside the source, bounded, copied; pictures with their width and height.

A picture without a size moves everything below it when it arrives, and a link to a section then lands elsewhere.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from toolgate.packs.lra.build.document.state import Document
from toolgate.packs.lra.build.faults import SourcePlace
from toolgate.packs.lra.paper.loading.urls import is_external, local_path

MAX_FILE_BYTES: Final = 50 * 1024 * 1024
"""Of one file that a paper carries: what code hosts still take."""
MAX_ALL_BYTES: Final = 500 * 1024 * 1024
MEASURE_PX: Final = 680
"""The width of the text, which `width=50%` is half of."""
OWN_FILES: Final = frozenset({"index.html", "paper.css", "math.css", "paper.js", "sw.js", "CITATION.cff", "LICENSE"})
_UNITS: Final = {
    "": 1.0,
    "px": 1.0,
    "pt": 96 / 72,
    "in": 96.0,
    "cm": 96 / 2.54,
    "mm": 96 / 25.4,
    "em": 17.0,
    "pc": 16.0,
}
_LENGTH: Final = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(%|[a-z]*)\s*")
_SVG_ROOT: Final = re.compile(rb"<svg\b[^>]*>", re.DOTALL)
_SVG_SIZE: Final = re.compile(rb"""\b(width|height)\s*=\s*["']([^"']+)["']""")
_SVG_BOX: Final = re.compile(rb"""\bviewBox\s*=\s*["']([^"']+)["']""")
_SHOWABLE: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg")


def take(document: Document, url: str, what: str, place: Callable[[], SourcePlace]) -> str:
    """Copy the local file that an address names; the address as the page writes it. Faults are told."""
    path = local_path(url)
    if path is None or posixpath.isabs(unquote(url)):
        document.fault(place(), f"{what} {url[:80]} is not a file beside the source")
        return url
    if path not in document.files:
        data = _bytes(document, path, what, place)
        if data is None:
            return url
        document.files[path] = data
        if sum(map(len, document.files.values())) > MAX_ALL_BYTES:
            document.fault(place(), f"the files of the paper are over {MAX_ALL_BYTES >> 20} MiB together")
    fragment = re.search(r"[?#].*$", url)
    return quote(path, safe="/!$&'()*+,;=:@~") + (fragment[0] if fragment else "")


def _bytes(document: Document, path: str, what: str, place: Callable[[], SourcePlace]) -> bytes | None:
    if path in OWN_FILES or any(part.startswith(".") for part in path.split("/")):
        document.fault(place(), f"{what} {path[:80]}: a paper carries no hidden file, and none named as its own")
        return None
    if path in document.media:
        return document.media[path]
    base = posixpath.dirname(document.source.file)
    data = document.read(posixpath.join(base, path), MAX_FILE_BYTES)
    if data is None:
        document.fault(place(), f"there is no {what} {path[:120]}")
    return data


def is_local(url: str) -> bool:
    return not url.startswith(("#", "?")) and not is_external(url) and not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url)


def picture(
    document: Document, url: str, pairs: dict[str, str], place: Callable[[], SourcePlace]
) -> tuple[str, int, int]:
    """A picture's address, width and height in pixels; zeros when it cannot be told (and the fault is)."""
    if not is_local(url):
        document.fault(place(), f"an image is a file beside the source, not {url[:80]}")
        return url, 0, 0
    found = take(document, url, "image", place)
    data = document.files.get(local_path(url) or "")
    if data is None:
        return found, 0, 0
    natural = size_of(data)
    if natural is None:
        kinds = ", ".join(_SHOWABLE)
        document.fault(place(), f"the image {url[:80]} is none that browsers show with a size ({kinds}): convert it")
        return found, 0, 0
    return found, *_asked(natural, pairs)


def _asked(natural: tuple[float, float], pairs: dict[str, str]) -> tuple[int, int]:
    """Width and height as the author asked for one or both of them, never wider than a wide figure."""
    ratio = natural[1] / natural[0]
    width, height = _pixels(pairs.get("width", "")), _pixels(pairs.get("height", ""))
    if width is None:
        width = height / ratio if height is not None else min(natural[0], MEASURE_PX * 1.5)
        height = width * ratio if height is None else height
    elif height is None:
        height = width * ratio
    return max(1, round(width)), max(1, round(height))


def _pixels(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    if not match:
        return None
    value, unit = float(match[1]), match[2]
    found = value / 100 * MEASURE_PX if unit == "%" else value * _UNITS.get(unit, 0.0)
    return found or None


def size_of(data: bytes) -> tuple[float, float] | None:
    """Width and height of a picture, from its first bytes."""
    for reader in (_png, _gif, _jpeg, _webp, _svg):
        found = reader(data)
        if found and found[0] > 0 and found[1] > 0:
            return found
    return None


def _png(data: bytes) -> tuple[float, float] | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or len(data) < 24:
        return None
    width, height = struct.unpack(">II", data[16:24])
    return float(width), float(height)


def _gif(data: bytes) -> tuple[float, float] | None:
    if data[:6] not in {b"GIF87a", b"GIF89a"} or len(data) < 10:
        return None
    width, height = struct.unpack("<HH", data[6:10])
    return float(width), float(height)


def _jpeg(data: bytes) -> tuple[float, float] | None:
    at = 2 if data[:2] == b"\xff\xd8" else len(data)
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return float(width), float(height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _webp(data: bytes) -> tuple[float, float] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1.0 + int.from_bytes(data[24:27], "little"), 1.0 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1.0 + (bits & 0x3FFF), 1.0 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", data[26:30])
    return float(width & 0x3FFF), float(height & 0x3FFF)


def _svg(data: bytes) -> tuple[float, float] | None:
    root = _SVG_ROOT.search(data[:65536])
    if not root:
        return None
    sizes = {name.decode(): _pixels(value.decode("utf-8", "replace")) for name, value in _SVG_SIZE.findall(root[0])}
    percent = any(b"%" in value for _, value in _SVG_SIZE.findall(root[0]))
    width, height = sizes.get("width"), sizes.get("height")
    if width and height and not percent:
        return width, height
    box = _SVG_BOX.search(root[0])
    numbers = re.findall(rb"-?[0-9.]+(?:e-?[0-9]+)?", box[1]) if box else []
    return (float(numbers[2]), float(numbers[3])) if len(numbers) == 4 else None
