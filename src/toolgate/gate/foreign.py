"""Steps 4 and 7 for adopted tools: schemas that somebody else wrote, by their own draft, without our own rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolgate.gate.explain import ValueFault
from toolgate.kit.foreignschema import ForeignSchema

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ForeignInput:
    """The arguments of an adopted tool."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises: SchemaFault (a ValueError)."""
        self._compiled = ForeignSchema(schema)
        self.schema = schema
        self.is_valid = self._compiled.is_valid

    def explain(self, instance: Any) -> list[ValueFault]:
        """Never empty, and never a value."""
        found = self._compiled.faults(instance)
        return [ValueFault(fault.pointer, fault.keyword, *_said(fault.pointer, fault.keyword)) for fault in found]

    def faults(self, instance: Any) -> list[ValueFault]:
        return [] if self.is_valid(instance) else self.explain(instance)

    def validate(self, instance: Any) -> None:
        """Raises: ValueError with the first fault's reason."""
        if faults := self.faults(instance):
            raise ValueError(faults[0].reason)


class ForeignOutput(ForeignInput):
    """An upstream's whole result: content, and what its schema demands of `structuredContent` unless the call failed."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        """Raises: SchemaFault (a ValueError)."""
        super().__init__(schema if schema is not None else {})
        self._declared = schema is not None
        self._structured = self._compiled.is_valid
        self.is_valid = self._is_valid

    def _is_valid(self, result: Any) -> bool:
        if not isinstance(result, dict) or not isinstance(result.get("content"), list):
            return False
        if result.get("isError") is True or not self._declared:
            return True
        return "structuredContent" in result and self._structured(result["structuredContent"])


def _said(pointer: str, keyword: str) -> tuple[str, str]:
    """The stable reason, and a sentence. A name that a caller made up is not echoed."""
    if keyword == "required":
        return "missing_argument", "An argument that the tool's own schema requires is missing."
    name = pointer.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        return "invalid_arguments", f"The arguments do not meet the tool's own schema ({keyword})."
    return f"invalid_{name}", f"The argument {name} does not meet the tool's own schema ({keyword})."
