"""What was read of a store is remembered while its marks say that nothing has changed."""

from __future__ import annotations

from toolgate.kit.sql import Views


class Mark:
    """A mark that a test can turn."""

    def __init__(self) -> None:
        self.holds = True
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.holds


def test_what_was_kept_is_found_while_every_mark_holds() -> None:
    views: Views[str, int] = Views(2)
    one, other = Mark(), Mark()
    views.put("a", 1, one, other)
    assert (views.get("a"), views.get("b"), one.asked, other.asked) == (1, None, 1, 1)
    other.holds = False
    assert views.get("a") is None


def test_what_has_changed_once_is_gone_even_if_its_mark_holds_again() -> None:
    views: Views[str, int] = Views(2)
    mark = Mark()
    views.put("a", 1, mark)
    mark.holds = False
    assert views.get("a") is None
    mark.holds = True
    assert views.get("a") is None


def test_nothing_is_kept_without_all_of_its_marks() -> None:
    views: Views[str, int] = Views(2)
    views.put("a", 1)
    views.put("b", 1, None)
    views.put("c", 1, Mark(), None)
    assert [views.get(key) for key in "abc"] == [None] * 3


def test_the_oldest_makes_room_and_what_is_kept_again_is_the_newest() -> None:
    views: Views[str, int] = Views(2)
    for key in ("a", "b", "a", "c"):
        views.put(key, ord(key), Mark())
    assert [views.get(key) for key in "abc"] == [ord("a"), None, ord("c")]
