"""What is named now and imported when it is used: a pack's parts, commands, and what a command does.

A command line explains itself from names, summaries and flags alone. So what stands here imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, ParamSpec

P = ParamSpec("P")


class Command(NamedTuple):
    """A command for people: `toolgate NAME`. Its module is imported when somebody runs it, not to list it."""

    name: str
    summary: str
    """One line of `toolgate --help`."""
    target: str
    """`module:name` of a function, or of a `typer.Typer` with commands of its own."""


class _Later(Sequence[Any]):
    """Stands for what `module:name` holds, and imports it on first use: as a sequence, or as something to call."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._found: Any = None

    def get(self) -> Any:
        if self._found is None:
            self._found = named(self._reference)
        return self._found

    def __len__(self) -> int:
        return len(self.get())

    def __getitem__(self, index: Any) -> Any:
        return self.get()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.get()(*arguments, **options)


def later(reference: str) -> Any:
    """What `module:name` holds, imported when it is used: so that a pack's commands do not wait for its tools.

    For fields of `Pack` that hold a sequence, and for functions.
    """
    return _Later(reference)


def load(*values: Any) -> None:
    """Imports now what `later` made: while something else is waited for."""
    for value in values:
        value.get()


def is_later(value: Any) -> bool:
    """Made by `later`."""
    return isinstance(value, _Later)


def holding(**references: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: names in it whose values, `module:name`, are imported when somebody asks for them."""

    def find(name: str) -> Any:
        if name not in references:
            raise AttributeError(f"there is no {name} in this module", name=name)
        return named(references[name])

    return find


def done_by(reference: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """For a command that is declared with its flags and its help alone: what it does is the function `module:name`.

    That function has the same parameters and is imported when the command runs, so that help does not wait for it.
    """

    def join(declared: Callable[P, None]) -> Callable[P, None]:
        @wraps(declared)
        def run(*arguments: P.args, **options: P.kwargs) -> None:
            named(reference)(*arguments, **options)

        run.done_by = reference  # type: ignore[attr-defined]  # a test compares both signatures
        return run

    return join


def named(reference: str) -> Any:
    """What `module:name` holds. Raises: ImportError, AttributeError."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
