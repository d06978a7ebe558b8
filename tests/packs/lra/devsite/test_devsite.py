"""The dev site over real sockets: what it serves, what it refuses, and that every tab hears of every change once."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.homes import PATIENCE_S
from tests.packs.lra.deployed.papers import PAGE, PAPER, plant, save
from tests.waiting import soon
from toolgate.errors import ToolError
from toolgate.packs.lra.devsite import overlay
from toolgate.packs.lra.devsite import pages as devsite_pages
from toolgate.packs.lra.devsite import site as devsite
from toolgate.packs.lra.devsite.overlay import Site
from toolgate.packs.lra.devsite.pages import decoded_path
from toolgate.packs.lra.devsite.site import DevSite, DevSites, bind
from toolgate.powers import jobs as jobs_module
from toolgate.powers.files import Workspace
from toolgate.powers.jobs import JobKeeper
from toolgate.servers.server import Server


async def in_thread(function: Callable[[Any], Any], data: Any, *, timeout_s: float) -> Any:
    return await asyncio.wait_for(asyncio.to_thread(function, data), timeout_s)


@asynccontextmanager
async def serving(workspace: Path, root: str = ".", port: int = 0) -> AsyncIterator[DevSite]:
    site = overlay.site(root, port)
    running = await DevSites(workspace, Workspace(workspace), in_thread)(site)
    try:
        yield running
    finally:
        await asyncio.wait_for(running.stop(), PATIENCE_S)


async def ask(
    port: int, target: str, *headers: str, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {host or f'localhost:{port}'}",
        "Connection: close",
        *headers,
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode("latin-1"))
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return int(first.split()[1]), fields, body


def run(test: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * PATIENCE_S))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    plant(root / "paper")
    (root / "lra-registry.json").write_text("{}")
    return root


@pytest.mark.req("000-D-SERVE-START")
def test_a_project_is_served_as_it_is(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            status, fields, body = await ask(site.port, "/")
            assert (status, fields["content-type"], body) == (200, "text/html; charset=utf-8", PAGE.encode())
            assert fields["cache-control"] == "no-store"
            assert fields["x-content-type-options"] == "nosniff"
            assert fields["cross-origin-resource-policy"] == "same-origin"
            assert "access-control-allow-origin" not in fields
            status, fields, body = await ask(site.port, "/wasm/add.wasm?x=1")
            assert (status, fields["content-type"], body) == (200, "application/wasm", PAPER["wasm/add.wasm"])
            status, fields, body = await ask(site.port, "/paper.css", method="HEAD")
            assert (status, fields["content-length"], body) == (200, str(len(PAPER["paper.css"])), b"")
            assert (await ask(site.port, "/LICENSE"))[1]["content-type"] == "text/plain; charset=utf-8"

    run(probe())


def test_only_a_page_that_a_browser_navigates_to_gets_the_reload_script(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            navigated = (await ask(site.port, "/", "Sec-Fetch-Dest: document"))[2]
            assert b'<script src="/__lra/client.js?v=' in navigated
            assert navigated.index(b"/__lra/client.js") < navigated.index(b"</body>")
            assert (await ask(site.port, "/", "Sec-Fetch-Dest: empty"))[2] == PAGE.encode()
            assert b"EventSource" in (await ask(site.port, "/__lra/client.js"))[2]
            assert (await ask(site.port, "/paper.js", "Sec-Fetch-Dest: document"))[2] == PAPER["paper.js"]

    run(probe())


def test_the_paper_s_service_worker_is_answered_by_one_that_removes_itself(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            assert b"unregister" in (await ask(site.port, "/sw.js", "Service-Worker: script"))[2]
            assert (await ask(site.port, "/sw.js"))[2] == PAPER["sw.js"]

    run(probe())


def test_a_workspace_lists_its_papers_and_nothing_else(workspace: Path) -> None:
    plant(workspace / "other&one")

    async def probe() -> None:
        async with serving(workspace) as site:
            status, _, body = await ask(site.port, "/")
            assert status == 200
            assert b'href="paper/"' in body
            assert b'href="other%26one/"><strong>Small</strong><span>other&amp;one/<' in body
            assert b"lra-registry" not in body
            assert (await ask(site.port, "/paper/"))[2] == PAGE.encode()
            status, fields, _ = await ask(site.port, "/paper")
            assert (status, fields["location"]) == (308, "/paper/")
            assert (await ask(site.port, "/paper/wasm/"))[0] == 404  # no listing

    run(probe())


NOT_SERVED = """
/../secret.txt /%2e%2e/secret.txt /..%2fsecret.txt /%2e%2e%2fsecret.txt /paper/../../secret.txt /.%2e/secret.txt
/%252e%252e/secret.txt /..\\secret.txt /..%5csecret.txt //etc/passwd /paper//index.html /./index.html /.git/config
/.env /.env/. /lra-identity.key /LRA-IDENTITY.KEY /server.pem /id_ed25519 /link.html /linked/index.html /linked/secret.txt
/pipe /paper.css/ /index.html%00.css /%ff /paper%0d%0a /missing /__lra/ /__lra/../secret.txt /__lra/%2e%2e/x
"""


def test_nothing_outside_no_dotfile_no_key_and_no_link_is_served(workspace: Path) -> None:
    secret = workspace.parent / "secret.txt"
    secret.write_text("SECRET")
    paper = workspace / "paper"
    (paper / ".git").mkdir()
    for name in (".git/config", ".env", "lra-identity.key", "server.pem", "id_ed25519"):
        (paper / name).write_text("SECRET")
    (paper / "link.html").symlink_to(secret)
    (paper / "linked").symlink_to(workspace.parent)
    os.mkfifo(paper / "pipe")

    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            for target in NOT_SERVED.split():
                status, _, body = await ask(site.port, target)
                assert status in (400, 404), target
                assert b"SECRET" not in body, target
                assert (await ask(site.port, "/"))[0] == 200

    run(probe())


def test_only_the_exact_host_is_answered_and_no_other_origin(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            for host in (
                "evil.test",
                f"evil.test:{site.port}",
                "localhost",
                f"localhost:{site.port + 1}",
                "127.0.0.1",
                f"localhost.evil.test:{site.port}",
                f"LOCALHOST:{site.port}.",
            ):
                assert (await ask(site.port, "/", host=host))[0] == 421
                assert (await ask(site.port, "/__lra/events", host=host))[0] == 421
            assert (await ask(site.port, "/", host=f"127.0.0.1:{site.port}"))[0] == 200
            assert (await ask(site.port, "/", "Origin: http://evil.test"))[0] == 403
            assert (await ask(site.port, "/__lra/events", "Origin: null"))[0] == 403
            assert (await ask(site.port, "/", f"Origin: http://localhost:{site.port}"))[0] == 200
            assert (await ask(site.port, "/", f"Host: localhost:{site.port}"))[0] == 400

    run(probe())


def test_only_reading_is_possible_and_ranges_are_not_computed(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
                assert (await ask(site.port, "/", method=method))[0] == 405
            assert (await ask(site.port, "/", "Range: bytes=" + "0-," * 20_000))[0] == 431
            status, fields, body = await ask(site.port, "/paper.css", "Range: bytes=" + "0-," * 4000)
            assert (status, fields["accept-ranges"], body) == (200, "none", PAPER["paper.css"])

    run(probe())


def test_the_site_listens_on_loopback_only(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            assert site._listener.getsockname()[0] == "127.0.0.1"

    run(probe())


# -- events ----------------------------------------------------------------------------------------------------


class Tab:
    """One browser tab's event stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, page: str = "/", shown: str = "") -> Tab:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * devsite_pages.MAX_PUSHED_BYTES)
        writer.write(f"GET /__lra/events?page={page}&shown={shown} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        return cls(reader, writer)

    async def next(self, name: str) -> dict[str, Any]:
        while True:
            line = await asyncio.wait_for(self.reader.readuntil(b"\n"), PATIENCE_S)
            if line.strip() == f"event: {name}".encode():
                data = await asyncio.wait_for(self.reader.readuntil(b"\n"), PATIENCE_S)
                value: dict[str, Any] = json.loads(data.removeprefix(b"data: "))
                return value

    def close(self) -> None:
        self.writer.close()


def test_a_tab_is_greeted_with_the_version_and_the_findings(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            served = (await ask(site.port, "/", "Sec-Fetch-Dest: document"))[2].decode()
            tab = await Tab.open(site.port)
            assert (await tab.next("hello"))["version"] == served.partition("client.js?v=")[2].partition('"')[0]
            assert await tab.next("report") == {"tier": "GOLD", "passed": 23, "total": 23, "failing": []}
            tab.close()

    run(probe())


def test_every_tab_hears_of_a_change_once_and_learns_the_new_tier(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace) as site:
            tabs = [await Tab.open(site.port, "/paper/") for _ in range(3)]
            for tab in tabs:
                await tab.next("report")
            save(workspace / "paper" / "paper.css", "body { color: red }")
            for tab in tabs:
                assert (await tab.next("change"))["css"] == ["paper/paper.css"]
            save(workspace / "paper" / "index.html", PAGE.replace('lang="en"', ""))
            for tab in tabs:
                news = await tab.next("change")
                assert (news["css"], news["reload"], news["html"]) == ([], False, PAGE.replace('lang="en"', ""))
                report = await tab.next("report")
                while report["tier"] == "GOLD":  # of the change before
                    report = await tab.next("report")
                assert (report["tier"], [one["rule"] for one in report["failing"]]) == ("NONE", ["B1"])
                tab.close()

    run(probe())


def test_a_batch_of_changes_is_one_event_and_dotfiles_are_none(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            tab = await Tab.open(site.port)
            before = (await tab.next("hello"))["version"]
            (workspace / "paper" / ".index.html.swp").write_text("x")
            (workspace / "paper" / "index.html~").write_text("x")
            for name in ("a.js", "b.js", "c.js", "index.html"):
                (workspace / "paper" / name).write_bytes(PAGE.encode())
            after = (await tab.next("change"))["version"]
            assert int(after.rpartition(".")[2]) == int(before.rpartition(".")[2]) + 1
            tab.close()

    run(probe())


def test_a_tab_gets_the_source_it_shows_and_no_other(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            served = (await ask(site.port, "/", "Sec-Fetch-Dest: document"))[2].decode()
            shown = served.partition('data-shown="')[2].partition('"')[0]
            for asked, told in ((shown, PAGE), ("0" * 64, None), ("", None)):
                tab = await Tab.open(site.port, shown=asked)
                assert (await tab.next("hello")).get("html") == told
                tab.close()

    run(probe())


def test_the_new_source_of_the_shown_page_travels_with_the_change(workspace: Path) -> None:
    strange = b'\xef\xbb\xbf<p>a\x00b\xff \r\n\xe2\x80\xa8 "data: x"</p>'

    async def probe() -> None:
        paper = workspace / "paper"
        (paper / "more.html").write_text("<p>more</p>")
        async with serving(workspace, "paper") as site:
            home, more = await Tab.open(site.port), await Tab.open(site.port, "/more.html")
            for tab in (home, more):
                await tab.next("report")
            save(paper / "more.html", strange)
            news = await more.next("change")
            assert (news["reload"], news["css"]) == (False, [])
            assert news["html"] == '<p>a\x00b\ufffd \r\n\u2028 "data: x"</p>'
            news = await home.next("change")  # what it shows may hold the other page in a frame
            assert (news["reload"], "html" in news) == (True, False)
            save(paper / "more.html", b"x" * (devsite_pages.MAX_PUSHED_BYTES + 1))
            news = await more.next("change")
            assert (news["reload"], "html" in news) == (True, False)
            (paper / "more.html").unlink()
            assert (await more.next("change"))["reload"] is True
            for tab in (home, more):
                tab.close()

    run(probe())


def test_a_file_saved_beside_and_renamed_is_a_change_of_that_file_alone(workspace: Path) -> None:
    async def probe() -> None:
        paper = workspace / "paper"
        async with serving(workspace, "paper") as site:
            tab = await Tab.open(site.port)
            await tab.next("report")
            for number in range(20):  # a machine that stands still between the two steps makes them two changes
                (paper / "index.html.tmp4711").write_text(f"<p>new {number}</p>")
                (paper / "index.html.tmp4711").replace(paper / "index.html")
                news = await tab.next("change")
                if not news["reload"]:
                    break
            assert (news["reload"], news["html"]) == (False, f"<p>new {number}</p>")
            tab.close()

    run(probe())


def test_a_paper_is_judged_once_for_all_tabs_and_told_after_the_change(workspace: Path) -> None:
    async def probe() -> None:
        judged: list[Any] = []
        site = overlay.site("paper", 0)

        def judge(gathered: Any) -> Any:
            judged.append(gathered)
            return site.judge(gathered)

        counting = Site(site.root, site.port, site.gather, judge, site.home)
        running = await DevSites(workspace, Workspace(workspace), in_thread)(counting)
        tabs = [await Tab.open(running.port) for _ in range(3)]
        for tab in tabs:
            await tab.next("report")
        judged.clear()
        save(workspace / "paper" / "paper.js", "1;")
        for tab in tabs:
            await tab.next("change")
            await tab.next("report")
            tab.close()
        assert len(judged) == 1
        await running.stop()

    run(probe())


def test_where_the_system_cannot_watch_files_are_looked_at_in_turn(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = devsite.awatch

    def limited(*arguments: Any, **options: Any) -> Any:
        if not options["force_polling"]:
            raise OSError("inotify limit reached")
        return real(*arguments, poll_delay_ms=20, **options)

    monkeypatch.setattr(devsite, "awatch", limited)

    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            tab = await Tab.open(site.port)
            await tab.next("report")
            changed = workspace / "paper" / "paper.js"
            changed.write_text("1; // changed")
            os.utime(changed, (2e9, 2e9))  # a poller sees whole seconds only
            await tab.next("change")
            tab.close()

    run(probe())


def test_a_tab_that_does_not_keep_up_is_let_go_and_a_paper_that_cannot_be_judged_has_no_findings(
    workspace: Path,
) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            pages = site._pages
            slow = pages.listen("/")
            assert slow is not None
            for _ in range(devsite_pages.QUEUE + 1):
                await pages.changed(["paper.js"])
            assert slow not in pages.listeners
            assert [slow.events.get_nowait()] == [None]  # its stream ends; the tab comes back and sees the new version
            assert await pages.report("/no/such/paper/") is None

    run(probe())


def test_f20_pages_of_other_sites_are_not_served(workspace: Path) -> None:
    """An image or a script tag of any web page reaches loopback without an Origin; browsers say where it comes from."""

    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            for target in ("/", "/__lra/events?page=/", "/__lra/client.js"):
                assert (await ask(site.port, target, "Sec-Fetch-Site: cross-site"))[0] == 403
            for ours in ("same-origin", "none"):
                assert (await ask(site.port, "/", f"Sec-Fetch-Site: {ours}"))[0] == 200
            assert not site._pages.listeners

    run(probe())


def test_f20_findings_are_kept_for_a_few_papers_only(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devsite_pages, "MAX_REPORTS", 3)

    async def probe() -> None:
        async with serving(workspace) as site:
            for number in range(20):
                await site._pages.report(f"/nowhere-{number}/")
                assert len(site._pages._reports) <= 3
            assert await site._pages.report("/paper/"), "and what is asked for is still judged"

    run(probe())


def test_a_server_that_cannot_start_says_so_and_leaves_nothing_running(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(Server, "start", fails)

    async def probe() -> None:
        with pytest.raises(ToolError, match="IO_ERROR"):
            async with serving(workspace, "paper"):
                pass

    run(probe())


def test_two_hundred_tabs_are_served_and_too_many_are_turned_away(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devsite_pages, "MAX_LISTENERS", 200)

    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            tabs = [await Tab.open(site.port) for _ in range(200)]
            for tab in tabs:
                await tab.next("hello")
            assert (await ask(site.port, "/__lra/events"))[0] == 503
            assert (await ask(site.port, "/"))[0] == 200
            (workspace / "paper" / "paper.js").write_text("1;")
            for tab in tabs:
                await tab.next("change")
                tab.close()

    run(probe())


def test_a_closed_tab_is_forgotten_and_stopping_ends_the_rest(workspace: Path) -> None:
    async def probe() -> None:
        async with serving(workspace, "paper") as site:
            gone, stays = await Tab.open(site.port), await Tab.open(site.port)
            await gone.next("hello")
            await stays.next("report")
            assert site.idle_s() == 0.0
            gone.close()
            await soon(lambda: len(site._pages.listeners) == 1, "the closed tab is forgotten")
            await site.stop()
            await asyncio.wait_for(stays.reader.read(), PATIENCE_S)  # to the end, which only comes if the site ends it
            assert stays.reader.at_eof()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", site.port)
            stays.close()

    run(probe())


# -- ports and jobs ---------------------------------------------------------------------------------------------


@pytest.mark.req("000-D-SERVE-BUSY")
def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ToolError) as refused:
            bind(port)
    assert (refused.value.code, refused.value.text) == ("ADDRESS_IN_USE", f"Address already in use: port {port}")


class FakeJob:
    """A job that only counts."""

    def __init__(self, idle: float = 0.0) -> None:
        self.details = {"url": "x", "port": 1, "path": "."}
        self.idle = idle
        self.stopped = 0

    def idle_s(self) -> float:
        return self.idle

    async def stop(self) -> None:
        self.stopped += 1


SITE = Site(root=".", port=1024, gather=lambda files, path: None, judge=lambda data: {})


def keeper(made: list[FakeJob], wait: asyncio.Event | None = None) -> JobKeeper:
    async def start(_: Site) -> FakeJob:
        if wait is not None:
            await wait.wait()
        made.append(FakeJob())
        return made[-1]

    return JobKeeper({("papers", "site"): start}, idle_timeout_s=60)


def test_a_caller_sees_and_stops_only_its_own_jobs() -> None:
    async def probe() -> None:
        made: list[FakeJob] = []
        jobs = keeper(made)
        alice, bob = jobs.of("papers", "alice"), jobs.of("papers", "bob")
        one = await alice.start("site", SITE, limit=4)
        assert [info.id for info in alice.list("site")] == [one.id]
        assert list(bob.list("site")) == []
        assert not await bob.stop(one.id)
        assert made[0].stopped == 0
        assert await alice.stop(one.id)
        assert not await alice.stop(one.id)
        assert made[0].stopped == 1
        with pytest.raises(ToolError, match="UNAVAILABLE"):
            await alice.start("rocket", SITE, limit=4)
        await jobs.close()

    run(probe())


def test_the_limit_holds_for_starts_at_the_same_moment() -> None:
    async def probe() -> None:
        made: list[FakeJob] = []
        wait = asyncio.Event()
        jobs = keeper(made, wait)
        starts = [asyncio.ensure_future(jobs.of("papers", "alice").start("site", SITE, limit=4)) for _ in range(9)]
        await asyncio.sleep(0)
        wait.set()
        results = await asyncio.gather(*starts, return_exceptions=True)
        assert len(made) == 4
        assert sum(isinstance(one, ToolError) and one.code == "TOO_MANY_JOBS" for one in results) == 5
        await jobs.of("papers", "bob").start("site", SITE, limit=4)
        await jobs.close()
        assert [job.stopped for job in made] == [1] * 5

    run(probe())


def test_one_process_runs_only_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_JOBS", 2)

    async def probe() -> None:
        jobs = keeper([])
        for name in ("alice", "bob"):
            await jobs.of("papers", name).start("site", SITE, limit=4)
        with pytest.raises(ToolError, match="TOO_MANY_JOBS"):
            await jobs.of("papers", "carol").start("site", SITE, limit=4)
        await jobs.close()

    run(probe())


def test_what_nobody_uses_is_ended_and_what_is_used_goes_on() -> None:
    async def probe() -> None:
        made: list[FakeJob] = []
        jobs = keeper(made)
        for _ in range(2):
            await jobs.of("papers", "alice").start("site", SITE, limit=4)
        made[0].idle = 61
        await jobs.end_idle()
        assert [job.stopped for job in made] == [1, 0]
        assert len(jobs.of("papers", "alice").list("site")) == 1
        await jobs.close()

    run(probe())


@pytest.mark.parametrize(
    "raw", [b"", b"x", b"/a#b", b"/a/./b", b"/%2E%2E", b"/a%2Fb", b"/%5C", b"//", b"/a//b", b"/%25", b"/%c3"]
)
def test_a_path_that_could_mean_another_place_is_none(raw: bytes) -> None:
    assert decoded_path(raw) is None


def test_a_path_is_decoded_once() -> None:
    assert decoded_path(b"/a%20b/%C3%A4.html") == "/a b/ä.html"
