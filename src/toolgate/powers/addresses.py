"""Which address may be spoken to, and which text is a URL: the pure half of the egress power (rules 1 and 2).

Texts lie in many ways (`0177.0.0.1`, `http://good.test\\@127.0.0.1/`, `::ffff:10.0.0.1`); so a URL is read once, by a
narrow grammar, and an address is judged as a number against explicit tables. `ipaddress.is_global` is not asked: it
calls NAT64, 6to4 and IPv4-compatible forms of private addresses global (CVE-2026-48782 was that belief).
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urljoin

import idna
from msgspec import Struct

from toolgate.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_URL_CHARS: Final = 1024
"""Characters of a target; a redirect gets no more."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address


def _v4(*texts: str) -> tuple[IPv4Network, ...]:
    return tuple(IPv4Network(text) for text in texts)


def _v6(*texts: str) -> tuple[IPv6Network, ...]:
    return tuple(IPv6Network(text) for text in texts)


NEVER_V4: Final = _v4("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32")
"""Where clouds hand out credentials: link-local (AWS, GCP, Azure), Azure's wire server, Alibaba, Oracle."""
NEVER_V6: Final = _v6("fe80::/10", "fd00:ec2::/32", "fd20:ce::/32")
"""Link-local, and the unique-local blocks of the AWS and GCP metadata services."""
NO_HOST_V4: Final = _v4("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")
"""Not one host's address: "this host" (reaches loopback on Linux), multicast, reserved and broadcast."""
NO_HOST_V6: Final = _v6("::/128", "ff00::/8")
PRIVATE_V4: Final = _v4(
    "10.0.0.0/8",
    "100.64.0.0/10",  # carrier-grade NAT
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.0.0.0/24",  # IETF protocol assignments
    "192.0.2.0/24",  # documentation
    "192.88.99.0/24",  # retired 6to4 relays
    "192.168.0.0/16",
    "198.18.0.0/15",  # benchmarks
    "198.51.100.0/24",
    "203.0.113.0/24",
)
GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that IANA has given out as global unicast; whatever is outside is refused without asking what it is."""
PRIVATE_V6: Final = _v6(
    "2001::/23",  # IETF protocol assignments: Teredo, ORCHID, benchmarks
    "2001:db8::/32",
    "2002::/16",  # 6to4, retired by RFC 7526; it embeds an IPv4 address
    "3fff::/20",  # documentation
)
MAPPED: Final = IPv6Network("::ffff:0:0/96")
NAT64: Final = IPv6Network("64:ff9b::/96")
"""Well-known prefix: an IPv6-only network reaches the IPv4 internet through it, so it is judged by what it embeds."""
ISATAP_MARKS: Final = (0x00005EFE, 0x02005EFE)
"""Bits 64-95 of an ISATAP address (RFC 5214); the last 32 are an IPv4 address."""


def embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that traffic to `address` would really go to, if the form carries one."""
    number = int(address)
    if address in MAPPED or address in NAT64 or (number >> 32) & 0xFFFFFFFF in ISATAP_MARKS:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def _within(address: Address, v4: Iterable[IPv4Network], v6: Iterable[IPv6Network]) -> bool:
    if isinstance(address, IPv4Address):
        return any(address in network for network in v4)
    inner = embedded_v4(address)
    return any(address in network for network in v6) or (inner is not None and _within(inner, v4, v6))


def is_metadata(address: Address) -> bool:
    """True for addresses that no setting opens: they hand out the machine's own credentials."""
    return _within(address, NEVER_V4, NEVER_V6)


def is_host(address: Address) -> bool:
    """False for unspecified, multicast, reserved and broadcast addresses: nothing there is one host."""
    return not _within(address, NO_HOST_V4, NO_HOST_V6)


def is_public(address: Address) -> bool:
    """True only for global unicast, and for transition forms only if what they embed is."""
    if not is_host(address) or is_metadata(address):
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in PRIVATE_V4)
    inner = embedded_v4(address)
    if inner is not None and not is_public(inner):
        return False
    if address in MAPPED or address in NAT64:
        return True
    return address in GLOBAL_V6 and not any(address in network for network in PRIVATE_V6)


def parse_address(text: str) -> Address:
    """An address as a resolver or a peer gives it. Raises ToolError: a zone id (CVE-2026-107289) or not an address."""
    try:
        if "%" in text:
            raise ValueError
        address = ip_address(text)
    except ValueError:
        raise ToolError("ADDRESS_REFUSED", "the name resolves to something that is not a plain address") from None
    # The socket layer says ::ffff:a.b.c.d where the resolver said a.b.c.d: one number, one judgement.
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return inner or address


class UrlTarget(Struct, frozen=True):
    """One URL, taken apart once. `path` starts with `/` and carries the query."""

    scheme: str
    host: str
    """Lower case, IDNA-encoded, without trailing dot; an IPv6 literal without brackets."""
    port: int
    path: str

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"

    @property
    def origin(self) -> str:
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.authority_host}{port}"

    @property
    def authority_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)
# What the two readers of a URL disagree about (browsers against urllib): backslash, blanks, controls, quotes, brackets.
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\xa0\\<>\"`{}|^]")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@%]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
DOT_SEGMENT = re.compile(r"(?:^|[/\\]|%2[fF]|%5[cC])(?:\.|%2[eE]){2}(?:$|[/\\?#;]|%2[fF]|%5[cC])")
"""A `..` segment, also percent-encoded: a path that climbs is never what an author deployed."""


def _invalid(text: str) -> ToolError:
    return ToolError("INVALID_TARGET", text)


def parse_target(url: str) -> UrlTarget:
    """Read a URL by the narrow grammar. Raises ToolError INVALID_TARGET naming the rule, never the text."""
    if len(url) > MAX_URL_CHARS:
        raise _invalid(f"the URL is longer than {MAX_URL_CHARS} characters")
    if _UNSAFE.search(url):
        raise _invalid("the URL contains a blank, control character, backslash, quote or brace; percent-encode it")
    found = _URL.fullmatch(url)
    if not found:
        raise _invalid("only absolute http:// and https:// URLs are fetched")
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    if "@" in authority:
        raise _invalid("the URL carries a user name or password; remove it")
    if DOT_SEGMENT.search(rest.partition("?")[0]):
        raise _invalid("the URL contains a '..' segment")
    parts = _AUTHORITY.fullmatch(authority)
    if not parts:
        raise _invalid("the URL's host is not a plain host name or address")
    port = int(parts[2]) if parts[2] else DEFAULT_PORTS[scheme]
    if not 1 <= port <= 65535:
        raise _invalid("the URL's port is not between 1 and 65535")
    path = rest if rest.startswith("/") else f"/{rest}"
    return UrlTarget(scheme, _host(parts[1]), port, quote(path, safe="%/:?#[]@!$&'()*+,;=~-._"))


def _host(text: str) -> str:
    if text.startswith("["):
        try:
            return str(IPv6Address(text[1:-1]))
        except ValueError:
            raise _invalid("the URL's host is not a valid IPv6 address") from None
    try:
        # Compatibility forms (circled or full-width digits) become what a resolver would make of them, then are judged.
        name = (text if text.isascii() else idna.encode(text, uts46=True).decode()).lower().removesuffix(".")
    except idna.IDNAError:
        raise _invalid("the URL's host is not a valid international name") from None
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _invalid("the URL's host is not a valid host name")
    # `127.1`, `0x7f000001`, `0177.0.0.1` and `2130706433` are all 127.0.0.1 to getaddrinfo.
    if _NUMERIC_LABEL.fullmatch(labels[-1]) and not (_QUAD.fullmatch(name) and all(int(part) < 256 for part in labels)):
        raise _invalid("a numeric host must be written as four decimal numbers, like 192.0.2.1")
    return name


def join(base: UrlTarget, reference: str) -> UrlTarget:
    """The address that `reference` (a Location header, a link) means on the page at `base`, read as strictly as any."""
    if len(reference) > MAX_URL_CHARS or _UNSAFE.search(reference):
        raise _invalid("a link or redirect is too long or contains characters that must be percent-encoded")
    try:
        return parse_target(urljoin(base.url, reference))
    except ValueError:
        raise _invalid("a link or redirect is not a URL") from None
