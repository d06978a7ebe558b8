"""Where a request comes from: believed from the right, only of trusted proxies, and only what has its form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.model.call import Origin
from toolgate.model.trace import MAX_STATE, trace_context
from toolgate.servers.origins import MAX_HOPS, Origins, peer_origin, read_origin_headers

PEER = Origin("10.0.0.1")
PROXIES = Origins(["10.0.0.0/24", "2001:db8::/32"])
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def believed(*headers: tuple[bytes, bytes], peer: Origin = PEER, origins: Origins = PROXIES) -> str | None:
    return origins.of(read_origin_headers(headers), peer).address


XFF = b"x-forwarded-for"
FORWARDED = b"forwarded"
CASES: dict[str, tuple[tuple[tuple[bytes, bytes], ...], str]] = {
    "none": ((), "10.0.0.1"),
    "one": (((XFF, b"203.0.113.7"),), "203.0.113.7"),
    "with a port": (((XFF, b"203.0.113.7:4711"),), "203.0.113.7"),
    "IPv6": (((XFF, b"2001:0DB9::1"),), "2001:db9::1"),
    "IPv6 with a port": (((XFF, b"[2001:db9::1]:80"),), "2001:db9::1"),
    "mapped": (((XFF, b"::ffff:203.0.113.7"),), "203.0.113.7"),
    "what a client wrote before": (((XFF, b"1.1.1.1, 203.0.113.7"),), "203.0.113.7"),
    "behind two of ours": (((XFF, b"1.1.1.1, 203.0.113.7, 10.0.0.9"),), "203.0.113.7"),
    "in two headers": (((XFF, b"203.0.113.7"), (XFF, b"10.0.0.9")), "203.0.113.7"),
    "only ours": (((XFF, b"10.0.0.8, 10.0.0.9"),), "10.0.0.8"),
    "a word": (((XFF, b"203.0.113.7, unknown"),), "10.0.0.1"),
    "a word behind one of ours": (((XFF, b"203.0.113.7, unknown, 10.0.0.9"),), "10.0.0.9"),
    "empty": (((XFF, b""),), "10.0.0.1"),
    "octal": (((XFF, b"010.0.0.1"),), "10.0.0.1"),
    "markup": (((XFF, b'"><script>'),), "10.0.0.1"),
    "Forwarded": (((FORWARDED, b"for=203.0.113.7;proto=https;by=10.0.0.1"),), "203.0.113.7"),
    "Forwarded, quoted": (((FORWARDED, b'For="[2001:db9::1]:4711"'),), "2001:db9::1"),
    "Forwarded, a list": (((FORWARDED, b"for=1.1.1.1, for=203.0.113.7, for=10.0.0.9"),), "203.0.113.7"),
    "Forwarded, hidden": (((FORWARDED, b"for=_secret"),), "10.0.0.1"),
    "Forwarded, twice in one": (((FORWARDED, b"for=203.0.113.7;for=203.0.113.8"),), "10.0.0.1"),
    "both agree": (((XFF, b"203.0.113.7"), (FORWARDED, b"for=203.0.113.7")), "203.0.113.7"),
    "both differ": (((XFF, b"203.0.113.7"), (FORWARDED, b"for=203.0.113.8")), "10.0.0.1"),
}


@pytest.mark.parametrize(("headers", "expected"), CASES.values(), ids=CASES)
def test_p8_the_address_is_the_first_from_the_right_that_is_no_trusted_proxy(
    headers: tuple[tuple[bytes, bytes], ...], expected: str
) -> None:
    assert believed(*headers) == expected


def test_p8_nobody_is_believed_who_is_not_trusted() -> None:
    assert believed((XFF, b"203.0.113.7"), peer=Origin("192.0.2.1")) == "192.0.2.1"
    assert believed((XFF, b"203.0.113.7"), origins=Origins()) == "10.0.0.1"


def test_p8_a_long_chain_is_walked_so_far_and_no_further() -> None:
    chain = b"203.0.113.7" + b", 10.0.0.9" * (MAX_HOPS + 1)
    assert believed((XFF, chain)) == "10.0.0.9"


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_p8_whatever_comes_in_the_headers_an_address_comes_out(one: bytes, other: bytes) -> None:
    from ipaddress import ip_address

    found = believed((XFF, one), (FORWARDED, other))
    assert found is not None
    assert str(ip_address(found)) == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("127.0.0.1", 5), "127.0.0.1"),
        (("::ffff:1.2.3.4", 5, 0, 0), "1.2.3.4"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::1"),
        ("/run/socket", None),
        (None, None),
    ],
)
def test_p8_the_address_of_a_peer(name: object, expected: str | None) -> None:
    assert peer_origin(name).address == expected


IDS = {
    "uuid": (b"6f1f9c5e-7d8e-4d0e-9c0b-0a0a0a0a0a0a", "6f1f9c5e-7d8e-4d0e-9c0b-0a0a0a0a0a0a"),
    "too long": (b"x" * 129, None),
    "a quote": (b'a"b', None),
    "not ASCII": (b"\xc3\xa4", None),
    "a tab": (b"a\tb", None),
    "empty": (b"", None),
}


@pytest.mark.parametrize(("sent", "kept"), IDS.values(), ids=IDS)
def test_p8_a_request_id_is_kept_if_it_has_the_form_of_one(sent: bytes, kept: str | None) -> None:
    said = read_origin_headers([(b"x-request-id", sent)])
    assert (said.request_id if said else None) == kept


def test_p8_a_request_id_that_comes_twice_counts_as_none_and_a_key_never_stays_in_it() -> None:
    assert read_origin_headers([(b"x-request-id", b"a"), (b"x-request-id", b"b")]) is None
    said = read_origin_headers([(b"x-request-id", b"x:tg_0123456789ab_" + b"0" * 64)])
    assert said is not None
    assert said.request_id == "x:[key]"


NOT_PARENTS = [
    "",
    PARENT.upper(),
    PARENT[:-1],
    PARENT + "-more",
    "ff" + PARENT[2:],
    "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
    PARENT + "\n",
    " " + PARENT,
    7,
    None,
    ["x"],
]


@pytest.mark.parametrize("parent", NOT_PARENTS)
def test_p8_a_trace_parent_without_its_form_is_ignored(parent: object) -> None:
    assert trace_context(parent, "a=1") is None


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("congo=t61rcWkgMzE", True),
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
        ("fw529a3039@dt=FfAAAAQ", True),
        ("a=1, b=2,", True),
        ("a=1,a=2", False),
        ("A=1", False),
        ("a=b=c", False),
        ("a=é", False),
        ("a", False),
        ("", False),
        (",".join(f"k{n}=1" for n in range(33)), False),
        ("a=" + "x" * MAX_STATE, False),
        (5, False),
    ],
)
def test_p8_a_trace_state_is_kept_only_in_its_form(state: object, kept: bool) -> None:
    assert trace_context(PARENT, state) == (PARENT, state if kept else None)


def test_p8_of_a_trace_parent_of_a_version_to_come_the_known_part_is_kept() -> None:
    assert trace_context("01" + PARENT[2:] + "-what-comes") == ("01" + PARENT[2:], None)
