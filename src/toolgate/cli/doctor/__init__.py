"""`toolgate doctor`: is everything in place? Here are its flags; `checks.py` looks."""

from __future__ import annotations

from toolgate.cli.options import Flags, Json, with_settings_flags
from toolgate.later import done_by


@with_settings_flags
@done_by("toolgate.cli.doctor.checks:doctor")
def doctor(flags: Flags, json: Json = False) -> None:
    """Check that everything is in place, and say how to mend what is not. Exit 1 when something is not.

    Nothing is changed, except that stores are opened (and brought up to date) as the server would.
    """
