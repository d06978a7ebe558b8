"""What one setting is: its kind, unit, range and words, and how its flag and its variable are spelt."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

PREFIX: Final = "TOOLGATE_"
_DASHES: Final = str.maketrans("._", "--")

T = TypeVar("T", bound=Any)
Kind = Literal["text", "whole", "number", "switch", "words", "place"]
Source = Literal["flag", "environment", "file", "default"]


class Spec(NamedTuple):
    """What one setting is. `docs/reference/settings.md`, the flags and the variables are all made from these."""

    key: str
    kind: Kind
    default: Any
    unit: str
    what: str
    """What it does, as its flag's help says it."""
    why: str = ""
    """The reason for it, where that does not stand to reason."""
    low: float | None = None
    high: float | None = None
    secret: bool = False
    """Never shown, and no flag: the process list shows flags to every user of the machine."""
    short: str | None = None
    """A second, shorter flag for what people type often."""
    choices: tuple[str, ...] = ()
    """For a text: the only ones there are."""
    form: str = ""
    """For a text: the expression that it matches, if it is not empty."""
    like: str = ""
    """An example of that."""
    sees: str | None = None
    """For a limit: what a client meets at it. `docs/reference/limits.md` is made of these."""
    live: bool = False
    """A reload takes it over; every other one needs a restart."""
    variable_name: str = ""
    """Its variable, where deployments already have one that does not begin with our prefix."""

    @property
    def about(self) -> str:
        """What it does, and why."""
        return f"{self.what}; {self.why}" if self.why else self.what

    @property
    def measure(self) -> str:
        """Its unit and range."""
        bounds = f"{self.low} to {self.high}" if self.low is not None else " or ".join(self.choices)
        return ", ".join(part for part in (self.unit, bounds) if part)

    @property
    def variable(self) -> str:
        return self.variable_name or PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        return "--" + "".join(f"-{char.lower()}" if char.isupper() else char for char in self.key).translate(_DASHES)


def described(kind: Kind, default: Any, what: str, unit: str = "", **more: Any) -> Any:
    """A field that carries its own description."""
    return Spec("", kind, default, unit, what, **more)


def defaulted(kind: T) -> T:
    """For a tuple whose fields are `described`: each gets its default, and what is said of it stays in `_field_defaults`.

    Tuples, because dataclasses of as many fields took a fourteenth of a server's start.
    """
    said = kind._field_defaults.values()
    kind.__new__.__defaults__ = tuple(each.default if isinstance(each, Spec) else each for each in said)
    return kind


class Resolved(NamedTuple):
    """One value and where it came from; `shown` hides what a secret holds."""

    spec: Spec
    value: Any
    source: Source

    @property
    def shown(self) -> Any:
        if self.spec.secret and self.value:
            return "(set, hidden)"
        if isinstance(self.value, Path):
            return str(self.value)
        return list(self.value) if isinstance(self.value, tuple) else self.value
