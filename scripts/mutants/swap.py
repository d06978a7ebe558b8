"""Puts the code of a changed module into the functions that live: who imported them runs the new code."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


class Swaps:
    """Of the modules at these paths, with these sources."""

    def __init__(self, originals: Mapping[Path, str]) -> None:
        self._originals = originals
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        files = {str(path) for path in originals}
        gc.unfreeze()  # what the tests' own configuration froze is not listed
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in files:
                self._functions.setdefault(_key(each.__code__), []).append(each)

    def take(self, path: Path, mutated: str) -> bool:
        """False, and nothing is changed: more than the bodies of functions is different, or a body that no function lives of."""
        try:
            before, after = (compile(source, str(path), "exec") for source in (self._originals[path], mutated))
        except SyntaxError:
            return False
        if _without_functions(before) != _without_functions(after):
            return False
        old, new = {_key(code): code for code in _inner(before)}, {_key(code): code for code in _inner(after)}
        changed = [key for key, code in new.items() if key not in old or old[key] != code]
        if old.keys() != new.keys() or not all(self._is_reachable(key, changed) for key in changed):
            return False
        for key in changed:
            for function in self._functions.get(key, ()):
                function.__code__ = new[key]
        return True

    def _is_reachable(self, key: tuple[str, str, int], changed: list[tuple[str, str, int]]) -> bool:
        """A function lives of it, or it is made anew by one that is changed with it."""
        outer = key[1].rpartition(".<locals>.")[0]
        return key in self._functions or any(other[1] == outer for other in changed)


def _key(code: CodeType) -> tuple[str, str, int]:
    return (code.co_filename, code.co_qualname, code.co_firstlineno)


def _inner(code: CodeType) -> Iterator[CodeType]:
    """Of functions, those of classes included; classes themselves run at import."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if not _is_class(each):
                yield each
            yield from _inner(each)


def _without_functions(code: CodeType) -> list[Any]:
    """What runs at import: the module's own instructions and constants, and those of its classes."""
    found: list[Any] = [code.co_code, code.co_names]
    for each in code.co_consts:
        if not isinstance(each, CodeType):
            found.append((type(each), each))
        elif _is_class(each):
            found.append(_without_functions(each))
    return found


def _is_class(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and "__module__" in code.co_names
