"""Where an upstream's resources are here: addresses and templates, rewritten so that they can be turned back.

`file:///notes` of the upstream `disk` is `disk+file:///notes` here; `ui://` keeps its scheme, by which clients know what to do
with it, and names the upstream first. An upstream without a prefix keeps its addresses as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from toolgate.model.offers import MAX_URI
from toolgate.packs.upstream.uritemplates import UriTemplate

MAX_OWN_URI: Final = MAX_URI - 64
"""Characters of an upstream's address: ours are longer by the upstream's name."""
_UI: Final = "ui://"
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}:[^\s\"<>\\^`|]*")
_WEB: Final = ("http:", "https:")


class Rewriting(Struct, frozen=True):
    """Of one upstream."""

    upstream: str
    is_plain: bool
    """It has no prefix: nothing is rewritten."""
    serves: Callable[[str], bool] = lambda _: False
    """Whether one of its own addresses can be read here."""

    def here(self, uri: str) -> str:
        """An address, or a template, of the upstream as it is called here."""
        if self.is_plain:
            return uri
        return f"{_UI}{self.upstream}/{uri[len(_UI) :]}" if uri.startswith(_UI) else f"{self.upstream}+{uri}"

    def own(self, uri: str) -> str:
        """The other way round, of an address that `here` has made."""
        if self.is_plain:
            return uri
        ui = f"{_UI}{self.upstream}/"
        return _UI + uri[len(ui) :] if uri.startswith(ui) else uri[len(self.upstream) + 1 :]

    def rewritten(self, value: Any) -> Any:
        """An answer with each address in it as it is called here. Those of the web that cannot be read here stay: clients
        fetch these themselves."""
        if isinstance(value, list):
            return [self.rewritten(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: self._member(key, item) for key, item in value.items()}

    def _member(self, key: str, value: Any) -> Any:
        if key in ("uri", "resourceUri", "ui/resourceUri") and isinstance(value, str):
            is_a_page = value.lower().startswith(_WEB) and not self.serves(value)
            return value if is_a_page or not _ADDRESS.fullmatch(value) else self.here(value)
        if key in ("structuredContent", "text", "blob", "data", "arguments"):
            return value  # the tool's own words
        return self.rewritten(value)


def address_fault(uri: Any, *, is_template: bool) -> str | None:
    """Why nothing can be served at it; None: it can."""
    if not isinstance(uri, str) or len(uri) > MAX_OWN_URI or not _ADDRESS.fullmatch(uri):
        return f"its address is not scheme:path of at most {MAX_OWN_URI} characters"
    if not is_template:
        return "its address has braces" if "{" in uri or "}" in uri else None
    try:
        UriTemplate(uri)
    except ValueError as fault:
        return str(fault)
    return "its scheme is a variable" if "{" in claim(uri) else None


def claim(uri: str) -> str:
    """What nobody else may serve addresses of: the scheme; of `ui://`, which all share, with the first part of the path."""
    scheme, _, rest = uri.partition(":")
    return f"{_UI}{rest[2:].partition('/')[0]}" if scheme == "ui" else scheme.lower()


def serves(resources: Mapping[str, Any], templates: Mapping[str, Any]) -> Callable[[str], bool]:
    """Whether an own address of the upstream is one of these."""
    made = [UriTemplate(each) for each in templates if address_fault(each, is_template=True) is None]
    return lambda uri: uri in resources or any(template.fits(uri) for template in made)
