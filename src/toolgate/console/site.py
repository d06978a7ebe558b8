"""The console's front: which address is which page, who may see it, and what may be sent to it.

What is sent (POST) changes something, and is believed only if all of this holds: Host and Origin are ours; the browser says that
it was sent by a page of the same origin; the session's cookie came, which browsers send with nothing that another site
started (SameSite=Strict); the form has the session's token. An act needs the role `admin` besides, and leaves a record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate.console.attempts import FORGOTTEN_S, Attempts, TooManyAttempts
from toolgate.console.feed import Feed
from toolgate.console.index.building import Behind, CatchUp, behind, catch_up, next_piece, put_piece, read_piece
from toolgate.console.index.filters import read_filter
from toolgate.console.pages import approvals, people, tools
from toolgate.console.pages import calls as call_pages
from toolgate.console.pages import one_call as call_page
from toolgate.console.pages.overview import overview
from toolgate.console.pages.panels import panel
from toolgate.console.pages.shared import ConsolePage, Desk, IndexFault
from toolgate.console.proving import LONGEST_S, make_proof
from toolgate.console.rendering import asset, render
from toolgate.console.session import ConsoleSession, Sessions
from toolgate.console.web import (
    FORM,
    MAX_FORM_BYTES,
    SAFE,
    NotFound,
    answer,
    as_json,
    elsewhere,
    plain,
    read_visit,
)
from toolgate.errors import LedgerUnavailable, ToolError, ToolgateError, WorkFailed
from toolgate.faces.reply import Reply
from toolgate.ledger.acts import Acts
from toolgate.model.threads import Threads

if TYPE_CHECKING:
    from toolgate.console.ports import Ports, UpstreamChange
    from toolgate.console.web import ConsoleVisit
    from toolgate.servers.application import Client
    from toolgate.servers.framing import Request

PATH: Final = b"/console"
AT_ONCE: Final = 4
"""Pages that are made at the same time; the next ones wait."""
SOON_BYTES: Final = 512 * 1024
"""So much of the log is read into the index before a page is made; more is left to a worker process."""
PIECE_BYTES: Final = 2 * 1024 * 1024
"""Of the log, that the worker reads at one go: its records are written in hundredths of a second."""
STILL_HERE_S: Final = 20.0
_log: Final = logging.getLogger("toolgate.console")
_CHANGED: Final = "has changed since this page was made, so nothing was recorded. Look again before you refuse it."
_NEXT: Final = ("calls", "tools", "approvals", "keys", "panels", "upstreams")


class Console:
    """Implements `toolgate.servers.application.PageSite`."""

    path: bytes = PATH

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._sessions = Sessions(ports.keys, ports.seal_key, ports.clock)
        self._attempts = Attempts(ports.clock, ports.counts)
        self._threads = Threads(AT_ONCE)
        self._feed = Feed(ports.log, self._is_live)
        self._building: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._feed.close()
        if self._building is not None:
            self._building.cancel()

    # What a head decides ---------------------------------------------------------------------------------------------

    def before_body(self, request: Request, *, served: bool) -> Reply | None:
        if not served:
            return _not_served()
        if request.method != b"POST":
            return plain("A page is asked for with GET and no body.\n", 405)
        return _unsent(request)

    async def respond(
        self, request: Request, body: bytes | None, client: Client, *, served: bool, address: str | None
    ) -> Reply | None:
        if not served:
            return _not_served()
        if request.method not in (b"GET", b"HEAD", b"POST"):
            return plain("GET, HEAD and POST only.\n", 405)
        refused = _unsent(request) if request.method == b"POST" else None
        if refused is not None or body is None:
            return refused or plain("This form is too long.\n", 413)
        if request.path == PATH:
            return Reply(308, b"", ((b"location", b"console/"), *SAFE))
        visit = read_visit(request, PATH, body, address or "")
        if visit is None:
            return plain("There is no such page.\n", 404)
        if visit.path[:1] == ("assets",):
            return _asset(visit)
        session = self._sessions.of(visit.headers.get(b"cookie"), visit.address)
        if session is not None:
            client.known_as(session.caller.key_id)
        # A task of its own: a connection runs the first steps of an answer without one, and timeouts need one.
        return await asyncio.get_running_loop().create_task(self._answer(visit, session, client))

    async def _answer(self, visit: ConsoleVisit, session: ConsoleSession | None, client: Client) -> Reply | None:
        try:
            if visit.method == "POST":
                return await self._post(visit, session)
            return await self._get(visit, session, client)
        except NotFound:
            return self._page(visit, session, ConsolePage("missing", "Not found", {}, 404))
        except LedgerUnavailable:
            fault = "The audit log cannot be written, so nothing was changed."
            return self._page(visit, session, ConsolePage("fault", "Not done", {"fault": fault}, 503))
        except IndexFault:
            fault = "The index of the console cannot be read or made; the log is unharmed. See the state directory."
            return self._page(visit, session, ConsolePage("fault", "No index", {"fault": fault}, 503))

    # Reading ---------------------------------------------------------------------------------------------------------

    async def _get(self, visit: ConsoleVisit, session: ConsoleSession | None, client: Client) -> Reply | None:
        if visit.path == ("sign-in",):
            return self._page(visit, None, _sign_in(visit)) if session is None else elsewhere("./")
        if session is None:
            return self._to_sign_in(visit)
        if visit.path == ("calls", "live"):
            return await self._live(visit, session, client)
        desk = await self._desk(visit, session)
        made = await self._made(desk)
        return made if isinstance(made, Reply) else await self._threads(self._page, visit, session, made, desk)

    async def _made(self, desk: Desk) -> ConsolePage | Reply:
        """Raises: NotFound."""
        match desk.visit.path:
            case ():
                waiting = await approvals.waiting_requests(desk)
                return await self._threads(overview, desk, await self._ports.ready(), waiting)
            case ("calls",):
                return await self._threads(call_pages.calls, desk)
            case ("calls.jsonl" | "calls.csv",):
                return await self._export(desk)
            case ("calls", request):
                return await self._threads(call_page.one_call, desk, request)
            case ("calls", request, "proof.json"):
                return await self._proof(desk, request)
            case ("tools",):
                return await self._threads(tools.tools, desk)
            case ("tools", name):
                return await self._threads(tools.one_tool, desk, name)
            case ("upstreams", name):
                return await self._upstream(desk, name)
            case ("keys",):
                return await self._threads(people.people, desk)
            case ("approvals", *name) if len(name) < 2:
                return await (approvals.one_approval(desk, name[0]) if name else approvals.approvals(desk))
            case ("panels", pack, name):
                return await panel(desk, pack, name)
        raise NotFound

    async def _desk(self, visit: ConsoleVisit, session: ConsoleSession) -> Desk:
        return Desk(self._ports, session, visit, await self._fresh(), self._ports.clock.wall())

    async def _fresh(self) -> Behind:
        """The index, as new as it can soon be."""
        ports = self._ports
        found = await self._threads(behind, ports.log, ports.index)
        if 0 < found.waiting <= SOON_BYTES:
            asked = CatchUp(str(ports.log), str(ports.index), 2 * SOON_BYTES)
            found = await self._threads(catch_up, asked)
        elif found.waiting and (self._building is None or self._building.done()):
            self._building = asyncio.get_running_loop().create_task(self._build())
        return found

    async def _build(self) -> None:
        """Read in a worker process, so that a long log costs nobody's calls much; written here, where files may be."""
        asked = CatchUp(str(self._ports.log), str(self._ports.index), PIECE_BYTES)
        done: set[tuple[str, int]] = set()
        try:
            while (place := await self._threads(next_piece, asked, done)) is not None:
                piece = await self._ports.compute(read_piece, place)
                await self._threads(put_piece, asked, place, piece)
                if piece.read < place.size:
                    done.add((place.run, place.segment))  # to its end: a busy server's newest file always has more
        except (WorkFailed, ToolError, ToolgateError, *IndexFault) as fault:
            _log.warning("the console's index is not made: %s %s", type(fault).__name__, fault)

    async def _export(self, desk: Desk) -> Reply:
        name = desk.visit.path[0]
        form, kind = call_pages.EXPORTS[name]
        data, is_all = await self._threads(call_pages.exported, desk, form)
        disposition = f'attachment; filename="{name}"'.encode()
        headers = ((b"content-type", kind.encode()), (b"content-disposition", disposition), *SAFE)
        return Reply(200, data, headers if is_all else (*headers, (b"x-toolgate-cut", b"yes")))

    async def _proof(self, desk: Desk, request: str) -> Reply:
        asked = await self._threads(call_page.proof_of, desk, request)
        try:
            return as_json(await self._ports.compute(make_proof, asked, timeout_s=LONGEST_S))
        except (WorkFailed, ToolgateError):
            return as_json({"fault": "the proof takes too long here; use toolgate audit prove"})

    async def _upstream(self, desk: Desk, name: str, fault: str = "", status: int = 200) -> ConsolePage:
        change: UpstreamChange | None = None
        known = any(each.name == name for each in self._ports.upstreams())
        if self._ports.changes is not None and known and desk.session.sees_all:
            try:
                change = await self._ports.changes.look(name)
            except ToolgateError as unreachable:
                fault = fault or str(unreachable)
        fault = fault.replace("\n", " ")
        page: ConsolePage = await self._threads(tools.upstream, desk, name, change, fault)
        return ConsolePage(page.template, page.title, page.values, status)

    async def _live(self, visit: ConsoleVisit, session: ConsoleSession, client: Client) -> Reply | None:
        ids = {grant.tool.name: grant.tool_id for grant in self._ports.grants()}
        listener = self._feed.listen(session, read_filter(visit.query), ids)
        if listener is None:
            return plain("Too many pages of this key are live.\n", 503)
        client.gone.append(lambda: self._feed.leave(listener))
        events = (b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")
        try:
            await client.send(b"retry: 2000\n: live\n\n", headers=(*events, *SAFE))
            while True:
                try:
                    async with asyncio.timeout(STILL_HERE_S):
                        news = await listener.queue.get()
                except TimeoutError:
                    news = b": still here\n\n"
                if news is None:
                    break
                await client.send(news)
            await client.send(b"event: end\ndata: end\n\n")
        finally:
            self._feed.leave(listener)
        return None

    def _is_live(self, session: ConsoleSession) -> bool:
        caller = self._ports.keys.live(session.caller.key_id, session.address or None, since=session.began)
        return caller is not None and caller.role == session.caller.role

    # Acting ----------------------------------------------------------------------------------------------------------

    async def _post(self, visit: ConsoleVisit, session: ConsoleSession | None) -> Reply:
        if visit.path == ("sign-in",):
            return await self._begin(visit)
        if session is None:
            return self._to_sign_in(visit)
        if not session.is_of(visit.form):
            return self._page(visit, session, _stale())
        acts = Acts(self._ports.ledger, session.caller, visit.address)
        if visit.path == ("sign-out",):
            await self._threads(acts.told, "console.sign_out", is_ok=True, about={})
            return elsewhere("sign-in", self._sessions.end_header)
        may_answer = visit.path[:1] == ("approvals",) and approvals.answers(session.caller, self._ports)
        if not session.acts and not may_answer:
            held = ", and your key is held to some tools" if session.caller.is_scoped else ""
            fault = f"Your role is {session.caller.role}{held}; only an admin changes something here."
            return self._page(visit, session, ConsolePage("fault", "Not allowed", {"fault": fault}, 403))
        return await self._act(visit, session, acts)

    async def _act(self, visit: ConsoleVisit, session: ConsoleSession, acts: Acts) -> Reply:
        desk = await self._desk(visit, session)
        match visit.path:
            case ("keys", "create"):
                page = await self._threads(people.create, desk, acts)
            case ("keys", key_id, "revoke"):
                fault = await self._threads(people.revoke, desk, acts, key_id)
                if not fault:
                    return elsewhere("../../keys")
                page = await self._threads(people.people, desk, fault=fault, status=409)
            case ("approvals", approval, "approve" | "refuse" as verdict):
                refused = await approvals.answer(desk, acts, approval, verdict)
                if refused is None:
                    return elsewhere(f"../{visit.path[1]}")
                page = refused
            case ("upstreams", name, "approve" | "refuse" as verb):
                page = await self._decide(desk, acts, name, verb)
            case _:
                raise NotFound
        return await self._threads(self._page, visit, session, page, desk)

    async def _decide(self, desk: Desk, acts: Acts, name: str, verb: str) -> ConsolePage:
        """On what an upstream changed. What is decided on is what was shown, or nothing."""
        changes, digest = self._ports.changes, desk.visit.form.get("digest", "")
        if changes is None:
            raise NotFound
        try:
            if verb == "approve":
                done = await changes.approve(name, digest, lambda about: acts.recorded("upstream.approve", about))
            elif not digest or (await changes.look(name)).digest != digest:
                return await self._upstream(desk, name, f"{name} {_CHANGED}", 409)
            else:
                done = await self._threads(_refuse, acts, name, digest)
        except LedgerUnavailable:
            raise
        except ToolgateError as fault:
            return await self._upstream(desk, name, str(fault), 409)
        return await self._upstream(desk, name, done)

    async def _begin(self, visit: ConsoleVisit) -> Reply:
        acts = Acts(self._ports.ledger, None, visit.address)
        try:
            self._attempts.begin(visit.address)
        except TooManyAttempts:
            wait = (b"retry-after", str(int(FORGOTTEN_S)).encode())
            fault = "Too many keys from your address were not accepted. Wait a minute."
            return self._page(visit, None, _sign_in(visit, fault, 429), None, wait)
        # A browser names the origin of the page it shows, whoever ends TLS; it is one that the settings name, or no form is read.
        is_secure = visit.headers[b"origin"].lower().startswith(b"https:")
        key = visit.form.get("key", "")
        session = await self._threads(self._sessions.begin, key, visit.address, is_secure=is_secure)
        if session is None:
            await self._threads(acts.told, "console.sign_in", is_ok=False, about={})
            return self._page(visit, None, _sign_in(visit, "This key is not accepted.", 403))
        self._attempts.worked(visit.address)
        own = Acts(self._ports.ledger, session.caller, visit.address)
        await self._threads(own.told, "console.sign_in", is_ok=True, about={})
        return elsewhere(_next(visit.form.get("next", "")), self._sessions.header(session))

    # Answers ---------------------------------------------------------------------------------------------------------

    def _to_sign_in(self, visit: ConsoleVisit) -> Reply:
        """An ended session and none at all are the same."""
        target = "/".join(visit.path) if visit.method == "GET" and visit.path[:1] and visit.path[0] in _NEXT else ""
        is_page = len(visit.path) < 3 and visit.path[-1:] != ("live",)
        more = f"?next={target}" if target and is_page and target.replace("/", "").replace("-", "").isalnum() else ""
        return elsewhere(f"{visit.up}sign-in{more}", self._sessions.end_header)

    def _page(
        self,
        visit: ConsoleVisit,
        session: ConsoleSession | None,
        page: ConsolePage,
        desk: Desk | None = None,
        *more: tuple[bytes, bytes],
    ) -> Reply:
        environment, _ = self._ports.environment()
        values: Mapping[str, Any] = {
            **page.values,
            "up": visit.up,
            "title": page.title,
            "session": session,
            "section": visit.path[0] if visit.path else "",
            "environment": environment,
            "behind": desk.behind if desk is not None else None,
            "panels": self._ports.panels if session is not None and session.sees_all else (),
        }
        if session is not None and self._sessions.is_worn(session):
            more = (*more, self._sessions.header(session))
        return answer(render(page.template, values), page.status, *more)


def _refuse(acts: Acts, name: str, digest: str) -> str:
    """Raises: LedgerUnavailable."""
    acts.told("upstream.refuse", is_ok=True, about={"upstream": name, "diff": digest})
    return "The refusal is on record; the tools stay refused."


def _unsent(request: Request) -> Reply | None:
    """Why a form is not even read: another site's page sent it, or it is none."""
    headers = dict(request.headers)
    if b"origin" not in headers or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return plain("This form was not sent by a page of this console.\n", 403)
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != FORM:
        return plain("Send a form.\n", 415)
    if request.length is None or request.length > MAX_FORM_BYTES:
        return plain("This form is too long.\n", 413)
    return None


def _not_served() -> Reply:
    text = (
        "This name or origin is not one that the server answers to.\nBehind a proxy, name both in the settings:"
        " server.allowed_hosts and server.allowed_origins.\n"
    )
    return plain(text, 421)


def _asset(visit: ConsoleVisit) -> Reply:
    found = asset(visit.path[1]) if len(visit.path) == 2 else None
    if found is None:
        return plain("There is no such file.\n", 404)
    return Reply(200, found[1], ((b"content-type", found[0]), *SAFE))


def _sign_in(visit: ConsoleVisit, fault: str = "", status: int = 200) -> ConsolePage:
    came = visit.headers.get(b"sec-fetch-site") == b"cross-site"
    wanted = visit.form.get("next") or visit.query.get("next", "")
    return ConsolePage("sign_in", "Sign in", {"fault": fault, "next": _next(wanted), "came_by_link": came}, status)


def _stale() -> ConsolePage:
    fault = "The page you used belongs to an earlier session, so nothing was changed. Open it again."
    return ConsolePage("fault", "Not done", {"fault": fault}, 403)


def _next(text: str) -> str:
    """Where to go after signing in: a page of ours, whatever is asked for."""
    parts = text.split("/")
    is_ours = len(parts) <= 2 and parts[0] in _NEXT and all(part.replace("-", "").isalnum() for part in parts)
    return text if is_ours and len(text) <= 100 else "./"
