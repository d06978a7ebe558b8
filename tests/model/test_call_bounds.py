"""What bounds a key: scopes and address ranges only ever take away."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.model.call import NO_BOUNDS, CallerBounds, check_bounds


@pytest.mark.parametrize(
    ("ranges", "address", "is_in"),
    [
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
        (("10.0.0.0/8",), None, False),
        (("10.0.0.0/8",), "", False),
        (("10.0.0.0/8",), "not an address", False),
        (("2001:db8::/32",), "2001:db8::1", True),
        (("2001:db8::/32",), "2001:db9::1", False),
        (("2001:db8::/32",), "10.0.0.1", False),
        (("0.0.0.0/0",), "::1", False),
        (("192.0.2.7", "2001:db8::7"), "192.0.2.7", True),
        ((), None, True),
    ],
)
def test_a_range_admits_its_addresses_and_no_absent_one(
    ranges: tuple[str, ...], address: str | None, is_in: bool
) -> None:
    assert CallerBounds(ranges=ranges).admits(address) is is_in


@pytest.mark.parametrize(
    "bounds",
    [
        CallerBounds(scopes=("",)),
        CallerBounds(scopes=("two words",)),
        CallerBounds(scopes=("x" * 74,)),
        CallerBounds(scopes=("é",)),
        CallerBounds(scopes=("a",) * 33),
        CallerBounds(ranges=("10.0.0.1/8",)),
        CallerBounds(ranges=("example.com",)),
        CallerBounds(ranges=("10.0.0.0/8",) * 33),
    ],
)
def test_what_bounds_nothing_as_meant_is_refused(bounds: CallerBounds) -> None:
    with pytest.raises(ValueError, match=r"scope|address"):
        check_bounds(bounds)


def test_more_scopes_than_a_message_holds_are_counted() -> None:
    assert CallerBounds(scopes=tuple("abcdefg")).told_scopes() == "a, b, c, d, e and 2 more"


_names = st.text("ab_:", min_size=1, max_size=5)
_globs = st.lists(st.text("ab_:*?", min_size=1, max_size=4), max_size=3).map(tuple)


def _matches(name: str, glob: str) -> bool:
    """A glob by its definition, for the two signs that the reference knows."""
    if not glob:
        return not name
    if glob[0] == "*":
        return any(_matches(name[cut:], glob[1:]) for cut in range(len(name) + 1))
    return bool(name) and glob[0] in ("?", name[0]) and _matches(name[1:], glob[1:])


@given(name=_names, scopes=_globs)
def test_scopes_cover_what_the_reference_says(name: str, scopes: tuple[str, ...]) -> None:
    assert CallerBounds(scopes=scopes).covers(name) is (not scopes or any(_matches(name, each) for each in scopes))


@given(
    address=st.ip_addresses(),
    ranges=st.lists(
        st.tuples(st.ip_addresses(), st.integers(0, 128)).map(
            lambda pair: str(ip_network((pair[0], min(pair[1], pair[0].max_prefixlen)), strict=False))
        ),
        max_size=3,
    ).map(tuple),
)
def test_ranges_admit_what_the_reference_says(address: object, ranges: tuple[str, ...]) -> None:
    found = ip_address(str(address))
    mapped = getattr(found, "ipv4_mapped", None) or found
    expected = not ranges or any(
        mapped.version == network.version
        and int(mapped) >> (mapped.max_prefixlen - network.prefixlen)
        == int(network.network_address) >> (mapped.max_prefixlen - network.prefixlen)
        for network in map(ip_network, ranges)
    )
    assert CallerBounds(ranges=ranges).admits(str(address)) is expected


@given(name=_names, scopes=_globs, more=_globs, address=st.none() | st.ip_addresses().map(str))
def test_bounds_never_widen(name: str, scopes: tuple[str, ...], more: tuple[str, ...], address: str | None) -> None:
    bounds = CallerBounds(scopes=scopes, ranges=("10.0.0.0/8",))
    assert not bounds.covers(name) or NO_BOUNDS.covers(name)
    assert not bounds.admits(address) or NO_BOUNDS.admits(address)
    if scopes:  # dropping a scope takes away, unless it was the last
        assert not CallerBounds(scopes=scopes).covers(name) or CallerBounds(scopes=scopes + more).covers(name)
