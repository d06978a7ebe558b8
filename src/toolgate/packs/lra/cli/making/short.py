"""`lra build SOURCE` by the shortest way: typer, which reads command lines, takes longer to load than a paper takes to read.

Only what is plainly spelt goes this way. Everything else goes the long one, which explains each mistake; a test compares what
both make of the same words.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolgate.later import later
from toolgate.packs.lra.cli.border import told

_BUILD: Final = later("toolgate.packs.lra.cli.making.building:build")
_IS_BESIDE: Final = later("toolgate.packs.lra.cli.making.building:is_beside")
_FLAGS: Final = {"--force": "force", "--json": "json"}
_VALUES: Final = {"-o": "output", "--output": "output", "--from": "form"}
_MEANS: Final[Mapping[str, Callable[[str], Any]]] = {
    "source": Path, "output": Path, "form": str, "force": bool, "json": bool,
}  # fmt: skip
_DEFAULTS: Final = {
    "source": Path("paper.md"), "output": None, "form": "", "watch": False, "force": False, "json": False,
}  # fmt: skip
_PLAIN: Final = re.compile(r"[^-\s*?\[~$%=][^*?\[~$%=]*")
"""A value: no flag, nothing that typer expands where the shell does not."""


def short(arguments: Sequence[str]) -> bool:
    """Raises: SystemExit.

    Side effects: builds the paper, if this is plainly asked for, and then leaves garbage to the end of the process.
    """
    asked = plain(arguments)
    if asked is None or _IS_BESIDE(asked["source"], asked["output"] or asked["source"].with_suffix("")):
        return False
    gc.disable()  # this process ends in a moment, and what it made with it
    told(lambda: _BUILD(**asked))
    gc.freeze()  # at its end the interpreter would look through all of it once more, whatever is disabled
    return True


def plain(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What the words ask of `building.build`; None when they say anything but that, or say it twice."""
    if not arguments or arguments[0] != "build":
        return None
    found: dict[str, Any] = {}
    words = list(arguments[1:])
    while words:
        word = words.pop(0)
        name = _FLAGS.get(word) or _VALUES.get(word) or "source"
        value = word if word in _FLAGS else _value(word, words)
        if name in found or not value:
            return None
        found[name] = _MEANS[name](value)
    return _DEFAULTS | found


def _value(word: str, words: list[str]) -> str:
    """Side effect: takes the word that follows a flag. Empty: it is not plain."""
    text = (words.pop(0) if words else "") if word in _VALUES else word
    return text if _PLAIN.fullmatch(text) else ""
