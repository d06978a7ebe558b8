"""Which texts are URLs and which addresses are public, as tables of hostile cases and as laws."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import ToolError
from toolgate.powers.addresses import is_host, is_metadata, is_public, join, parse_address, parse_target

REFUSED_URLS = [
    "",
    "paper",
    "//example.org/",
    "ftp://example.org/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http:example.org",
    "https://",
    "https:///path",
    "https://user@example.org/",
    "https://user:secret@example.org/",
    "http://example.org\\@127.0.0.1/",
    "http://exam\tple.org/",
    "http://exam\nple.org/",
    " http://example.org/",
    "http://example.org/ a",
    "http://example.org/\x00",
    "http://example.org/\x7f",
    "http://exa%6dple.org/",
    "http://[fe80::1%25eth0]/",
    "http://[::1",
    "http://[::g]/",
    "http://[:::]/",
    "http://[1]/",
    "http://[::1]x/",
    "http://example.org:/",
    "http://example.org:0/",
    "http://example.org:65536/",
    "http://example.org:999999/",
    "http://example.org:+80/",
    "http://example.org:８０/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1.1/",
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://01.2.3.4/",
    "http://a..b/",
    "http://.example.org/",
    "http://example.org../",
    "http://-a.example.org/",
    "http://" + "a" * 64 + ".org/",
    "http://" + "a." * 130 + "org/",
    "http://xn--/",
    "http://\u202eexample.org/",
    "https://example.org/" + "a" * 1024,
    "https://example.org/a/../b",
    "https://example.org/..",
    "https://example.org/%2e%2e/x",
    "https://example.org/.%2E/x",
    "https://example.org/a%2f..%2fb",
    "https://example.org/a/..%5cb",
    "https://example.org/..;/b",
]


@pytest.mark.req("000-D-VERIFY-DOTDOT")
@pytest.mark.parametrize("url", REFUSED_URLS)
def test_a_text_that_two_readers_could_read_differently_is_not_a_target(url: str) -> None:
    with pytest.raises(ToolError) as refused:
        parse_target(url)
    assert refused.value.code == "INVALID_TARGET"
    assert not url or len(url) < 8 or url not in refused.value.text


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("HTTPS://Example.ORG", "https://example.org/"),
        ("https://example.org.", "https://example.org/"),
        ("https://example.org:443/a?b=c#d", "https://example.org/a?b=c"),
        ("http://example.org:8080/", "http://example.org:8080/"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("https://192.0.2.1/", "https://192.0.2.1/"),
        ("https://[2001:DB8::0:1]:8443/x", "https://[2001:db8::1]:8443/x"),
        ("https://example.org?x", "https://example.org/?x"),
        ("https://example.org/a..b/c...d", "https://example.org/a..b/c...d"),
        ("https://example.org/?q=../..", "https://example.org/?q=../.."),
        # Circled digits become what a resolver would make of them: an address, and the address is then judged.
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/"),
    ],
)
def test_a_url_has_one_reading(url: str, read: str) -> None:
    target = parse_target(url)
    assert target.url == read
    assert parse_target(target.url) == target


# fmt: off
NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
    "127.255.255.254", "169.254.1.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200", "::", "::1", "::7f00:1",
    "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1::808:808", "100::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a00:1::", "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254",
    "fe80::1", "fec0::1", "ff02::1", "4000::1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1",
    "2606:4700::5efe:169.254.169.254",
]
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1",
    "192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "168.63.129.15", "::ffff:8.8.8.8",
    "64:ff9b::808:808", "2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888",
    "2606:4700::5efe:808:808",
]

# fmt: on


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_what_is_not_global_unicast_is_not_public_in_any_form(text: str) -> None:
    assert not is_public(ip_address(text))
    assert not is_public(parse_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_what_the_internet_routes_is_public(text: str) -> None:
    assert is_public(parse_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2606:4700::5efe:169.254.169.254",
    ],
)
def test_metadata_services_are_known_in_every_form(text: str) -> None:
    assert is_metadata(ip_address(text))
    assert is_metadata(parse_address(text))


@pytest.mark.parametrize("text", ["fe80::1%eth0", "127.0.0.1%1", "", "localhost", "1.2.3", "::ffff:1.2.3.4%x"])
def test_an_answer_with_a_zone_or_without_an_address_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="ADDRESS_REFUSED"):
        parse_address(text)


@given(st.ip_addresses(v=4))
def test_a_mapped_or_translated_address_is_judged_as_what_it_carries(address: IPv4Address) -> None:
    number = int(address)
    for form in (IPv6Address(0xFFFF << 32 | number), IPv6Address((0x64FF9B << 96) | number)):
        assert is_public(form) == is_public(address)
        assert is_metadata(form) == is_metadata(address)
        assert is_host(form) == is_host(address)


@given(st.ip_addresses())
def test_public_means_neither_metadata_nor_nobody_nor_what_python_calls_private(
    address: IPv4Address | IPv6Address,
) -> None:
    if is_public(address):
        assert is_host(address)
        assert not is_metadata(address)
        assert not any((address.is_loopback, address.is_link_local, address.is_multicast))
        plain = parse_address(str(address))
        assert plain.version == 6 or not plain.is_private


@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.org/{text}"):
        try:
            target = parse_target(url)
        except ToolError:
            continue
        assert parse_target(target.url) == target


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ("b.css", "https://example.org/a/b.css"),
        ("/b.css", "https://example.org/b.css"),
        ("../b.css", "https://example.org/b.css"),
        ("//other.test/x", "https://other.test/x"),
        ("http://other.test/x", "http://other.test/x"),
        ("?q", "https://example.org/a/?q"),
    ],
)
def test_a_reference_is_read_from_its_page(reference: str, read: str) -> None:
    assert join(parse_target("https://example.org/a/"), reference).url == read


@pytest.mark.parametrize(
    "reference", ["a b", "\\\\evil\\x", "javascript:1", "data:text/html,x", "http://[::1", "%2e%2e/x", "x" * 2000]
)
def test_a_reference_that_is_no_url_is_refused(reference: str) -> None:
    with pytest.raises(ToolError, match="INVALID_TARGET"):
        join(parse_target("https://example.org/a/"), reference)
