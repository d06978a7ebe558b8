"""How many cases a property test draws: few where every change waits for them, many where new ones are looked for."""

from __future__ import annotations

from hypothesis import settings


def cases(fast: int, search: int, **more: object) -> settings:
    """`fast` for `make test`, `search` for `make search`; the profile was chosen before any test was loaded."""
    is_search = settings.get_current_profile_name() == "search"
    return settings(max_examples=search if is_search else fast, **more)  # type: ignore[arg-type]
