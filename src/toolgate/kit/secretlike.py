"""What looks like a secret: for files in which none should stand, for moving those that do, and for forms that ask for one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import log2
from typing import Any, Final

from toolgate.kit.foreignschema import ForeignSchema, SchemaFault

_REFERENCE: Final = re.compile(r"(env|file):[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_KNOWN: Final = re.compile(
    r"(sk-|sk_|pk_|rk_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|AIza|ya29\.|eyJ[A-Za-z0-9_-]{8,}\.|npm_|hf_)"
    r"[A-Za-z0-9_.=/+-]{8,}"
)
"""How the tokens of the field begin."""
_DENSE: Final = re.compile(r"[A-Za-z0-9_+=.-]{24,}")
_BITS: Final = 3.5
"""What each character of a random token carries at least, also in hexadecimal; those of words carry less."""
_NAMED: Final = re.compile(
    r"token|secret|passw|api.?key|apikey|credential|private.?key|authorization|(^|_)(key|pat|auth)$", re.IGNORECASE
)


NO_SECRETS: Final = "a form asks for fields, and never for a secret"
FORMS_ONLY: Final = "the gate relays questions that are forms, and no elicitation by URL, whatever the client can do"


def is_reference(text: str) -> bool:
    """`env:NAME`, or `file:NAME` for a file of the secrets directory."""
    return _REFERENCE.fullmatch(text) is not None


def looks_secret(value: str) -> bool:
    """A token by its beginning, or long text without blanks that is too random for words. A reference is none."""
    last = value.rpartition(" ")[2]
    if not last or is_reference(last):
        return False
    if _KNOWN.match(last):
        return True
    return _DENSE.fullmatch(last) is not None and any(map(str.isdigit, last)) and _bits(last) >= _BITS


def is_named_secret(name: str) -> bool:
    """A variable or header that is called like one: what it holds is a secret, whatever it looks like."""
    return _NAMED.search(name) is not None


def _bits(text: str) -> float:
    shares = [text.count(char) / len(text) for char in set(text)]
    return -sum(share * log2(share) for share in shares)


def form_fault(params: Mapping[str, Any]) -> str | None:
    """Why this form may not be shown to a person; None: it may. What is filled in is read by the client and its model: no place
    for a secret."""
    if params.get("mode", "form") != "form":
        return FORMS_ONLY
    schema = params.get("requestedSchema")
    if not isinstance(params.get("message"), str) or not isinstance(schema, Mapping):
        return "a question needs a message and a requestedSchema"
    if not isinstance(schema.get("properties"), Mapping) or any(_is_secret(*field) for field in _fields(schema)):
        return NO_SECRETS
    try:
        ForeignSchema(schema)
    except SchemaFault:
        return "the requestedSchema is no usable JSON Schema"
    return None


def _fields(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every property with its schema, however deep: strict JSON has an end to its depth."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        for name, field in properties.items() if isinstance(properties, Mapping) else ():
            yield str(name), field
        for part in schema.values():
            yield from _fields(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _fields(part)


def _is_secret(name: str, field: Any) -> bool:
    title, form = (field.get("title"), field.get("format")) if isinstance(field, Mapping) else (None, None)
    return is_named_secret(name) or (isinstance(title, str) and is_named_secret(title)) or form == "password"
