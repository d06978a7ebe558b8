"""Which addresses a template makes."""

from __future__ import annotations

import pytest

from toolgate.packs.upstream.uritemplates import MAX_EXPRESSIONS, UriTemplate


@pytest.mark.parametrize(
    ("template", "fitting", "others"),
    [
        (
            "note://{id}/data",
            ["note://7/data", "note://a%20b/data"],
            ["note:///data", "note://a/b/data", "note://7/data2"],
        ),
        ("file:///{+path}", ["file:///a/b?c#d"], ["file:///", "file:///a b"]),
        ("db://t{?q,limit}", ["db://t", "db://t?q=1&limit=2"], ["db://tq", "db://t?q#f"]),
        ("a://x{/path*}", ["a://x", "a://x/b/c"], ["a://xb", "a://x/b?c"]),
        ("a://{userId}.{ext}", ["a://b.c", "a://b.c.d"], ["a://b", "a://.", "a://b.c/d"]),
        ("a://{x}{y}", ["a://bc"], ["a://b"]),
        ("a://b{#part}", ["a://b", "a://b#c"], ["a://bc"]),
    ],
)
def test_an_address_is_of_the_template_or_not(template: str, fitting: list[str], others: list[str]) -> None:
    made = UriTemplate(template)
    assert [each for each in fitting if not made.fits(each)] == []
    assert [each for each in others if made.fits(each)] == []


@pytest.mark.parametrize("template", ["a://{", "a://{}", "a://b c", "a://{x y}", "a://{x}" * (MAX_EXPRESSIONS + 1)])
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="it "):
        UriTemplate(template)


def test_an_address_made_to_be_slow_is_not() -> None:
    """Each part looks at each character once: a matcher that tries again would not come back."""
    made = UriTemplate("a://" + "{x}-" * MAX_EXPRESSIONS + "end")
    assert not made.fits("a://" + "-" * 2000)
