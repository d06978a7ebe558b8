"""A paper's tier as a small picture, drawn here: one from another server would take the paper's Gold away (G3)."""

from __future__ import annotations

from typing import Final

LEFT: Final = "LRA-1.0"
_LETTER_PX: Final = 7.2
"""Width of a letter of the badge's face, about; `textLength` makes it exact in every browser."""
_PADDING_PX: Final = 12


def svg(tier: str, colour: str) -> str:
    """`colour`: six hex digits."""
    right = tier.lower()
    left_width, right_width = (round(len(text) * _LETTER_PX + _PADDING_PX) for text in (LEFT, right))
    width = left_width + right_width
    texts = "".join(
        f'<text x="{x:g}" y="14" fill="{ink}" textLength="{length - _PADDING_PX}">{text}</text>'
        for text, x, ink, length in (
            (LEFT, left_width / 2, "#fff", left_width),
            (right, left_width + right_width / 2, "#111", right_width),
        )
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{LEFT}: {right}">'
        f"<title>{LEFT}: {right}</title>"
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left_width}" height="20" fill="#444"/>'
        f'<rect x="{left_width}" width="{right_width}" height="20" fill="#{colour}"/></g>'
        f'<g text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
