"""SQL text as a statement, without loading SQLAlchemy before a store is used."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import TextClause


@cache
def sql(statement: str) -> TextClause:
    """`:name` parameters; one object per text, so that SQLAlchemy compiles each statement once."""
    # `toolgate contract check` imports every pack and must stay light: the engine waits for its first use.
    from sqlalchemy import text  # noqa: PLC0415

    return text(statement)
