"""Every form of the console, sent by a page that is too old or by a person whose key has ended: refused, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.console.forms import ACTS, FORMS, World, in_templates, routes, shape, world
from tests.console.visiting import Seen, Visitor, visitor


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("replays")) as made:
        made.change()
        yield made


class Page:
    """A page that somebody opened: everything that its forms would send."""

    def __init__(self, there: World, person: Visitor, path: str) -> None:
        self.person, self._path = person, path
        key, _ = there.home.ring().create("builder", label="of the page")
        self.approval = there.waiting(f"{path} of {key.id}")
        self.names = {"key": key.id, "approval": self.approval, "digest": there.digest(there.admin())}
        self.names["secret"] = there.home.keys["builder"]
        self.token = person.get("keys").token

    def send(self, **changed: str) -> Seen:
        form = {name: value.format(**self.names) for name, value in FORMS[self._path].items()}
        return self.person.post(self._path.format(**self.names), {"token": self.token, **form, **changed})


def test_every_form_of_the_routes_and_of_the_pages_has_its_row_here() -> None:
    assert {shape(path) for path in FORMS} == routes()
    assert {shape(path) for path in FORMS} == in_templates()
    assert len(routes()) >= 8, "the routes were found"


@pytest.mark.parametrize("path", [*ACTS, "sign-out"])
def test_a_page_of_a_session_before_this_one_does_nothing(there: World, path: str) -> None:
    person = there.admin()
    page = Page(there, person, path)
    before, told = there.state((page.approval,)), there.acts()
    person.cookies.clear()
    person.sign_in(there.home.keys["admin"])
    seen = page.send()
    assert (seen.status, "earlier session" in seen.shown) == (403, True)
    assert (there.state((page.approval,)), there.acts()) == (before, told)
    assert person.get().status == 200, "the new session goes on"


@pytest.mark.parametrize("path", [*ACTS, "sign-out"])
def test_a_page_of_a_key_that_was_revoked_meanwhile_does_nothing(there: World, path: str) -> None:
    key, text = there.home.ring().create("admin", label="ended")
    page = Page(there, visitor(there.server, text), path)
    there.home.ring().revoke(key.id)
    before, told = there.state((page.approval,)), there.acts()
    kept = dict(page.person.cookies)
    seen = page.send()
    assert (seen.status, seen.headers["Location"].endswith("sign-in")) == (303, True)
    assert (there.state((page.approval,)), there.acts()) == (before, told)
    page.person.cookies = kept  # somebody who keeps the cookie that the answer has taken away
    assert page.person.get("keys").status == 303


@pytest.mark.parametrize("path", [*ACTS, "sign-out"])
def test_a_page_of_a_key_that_has_another_role_now_does_nothing(there: World, path: str) -> None:
    """A key's role cannot be changed in place; a file that was restored or edited can say so all the same."""
    ring = there.home.ring()
    key, text = ring.create("admin", label="demoted")
    page = Page(there, visitor(there.server, text), path)
    file = there.home.path / "keys" / "callers.json"
    file.write_text(_with_role(file.read_text(), key.id, "auditor"))
    before = there.state((page.approval,))
    assert page.send().status == 303
    assert there.state((page.approval,)) == before


def _with_role(text: str, key_id: str, role: str) -> str:
    import json

    found = json.loads(text)
    row = next(each for each in found["keys"] if each["id"] == key_id)
    row["role"] = role
    return json.dumps(found)


def test_a_revoked_key_signs_nobody_in_and_the_attempt_is_on_record(there: World) -> None:
    key, text = there.home.ring().create("admin", label="gone")
    there.home.ring().revoke(key.id)
    person = Visitor(there.port)
    seen = person.post("sign-in", {"key": text}, X_Forwarded_For="192.0.2.77")
    assert (seen.status, person.cookies) == (403, {})
    told = [each for each in there.home.records() if each.get("act") == "console.sign_in"][-1]
    assert (told["status"], told["from"]["address"]) == ("error", "192.0.2.77")
    assert text.rpartition("_")[2] not in str(told)


# -- what was shown is no longer so -----------------------------------------------------------------------------


def _revoked(there: World, page: Page) -> None:
    there.home.ring().revoke(page.names["key"])


def _answered(there: World, page: Page) -> None:
    other = visitor(there.server, there.home.ring().create("admin", label="another admin")[1])
    done = other.post(f"approvals/{page.approval}/refuse", {"token": other.get("keys").token})
    assert done.status == 303


def _changed_again(there: World, page: Page) -> None:
    there.change("turned text")


OVERTAKEN: Mapping[str, Callable[[World, Page], None] | None] = {
    "keys/create": None,
    "keys/{key}/revoke": _revoked,
    "approvals/{approval}/approve": _answered,
    "approvals/{approval}/refuse": _answered,
    "upstreams/stub/approve": _changed_again,
    "upstreams/stub/refuse": _changed_again,
}
"""What happens between a page and its form. A form that makes something new speaks of nothing that could change."""


def test_every_act_says_what_can_overtake_it() -> None:
    assert OVERTAKEN.keys() == ACTS.keys()


@pytest.mark.parametrize("path", [path for path, overtaken in OVERTAKEN.items() if overtaken is not None])
def test_a_page_that_shows_what_is_no_longer_so_does_nothing(there: World, path: str) -> None:
    there.change()
    page = Page(there, there.admin(), path)
    overtake = OVERTAKEN[path]
    assert overtake is not None
    overtake(there, page)
    before = there.state((page.approval,))
    assert page.send().status == 409
    assert there.state((page.approval,)) == before
    there.change()


def test_every_act_does_what_it_says_when_nothing_has_overtaken_it(there: World) -> None:
    """So that the rows above could have changed something."""
    for path in sorted(ACTS, key=lambda each: each.endswith("stub/approve")):
        there.change()
        page = Page(there, there.admin(), path)
        before = there.state((page.approval,))
        assert page.send().status in (200, 303), path
        after = there.state((page.approval,))
        assert before["done"] != after["done"], path
