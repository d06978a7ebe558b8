"""What a message asks for beside one call: a session, a level of logging, subscriptions, a stream of changes, a list that has
to be looked up. Whatever of it touches something is a call of its own: it has a role, a limit and a record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolgate.errors import Ending, Refusal
from toolgate.gate.authority.answers import serve_approvals
from toolgate.gate.sessions.seals import MAX_SUBSCRIPTIONS
from toolgate.gate.sessions.watch import Watched, WatchStream, list_stamp
from toolgate.model.call import Call

if TYPE_CHECKING:
    from toolgate.faces.face import Asked, Besides
    from toolgate.faces.reply import Reply
    from toolgate.gate.admit import Ticket
    from toolgate.gate.arrival import Arrival
    from toolgate.gate.road import Road
    from toolgate.gate.sessions.seals import SealedSession
    from toolgate.model.call import Caller
    from toolgate.model.envelope import Answer


async def fulfil(road: Road, arrival: Arrival, asked: Asked, besides: Besides) -> Reply:
    """Raises: Refusal."""
    if besides.wish == "session":
        return _greeted(road, arrival, asked, besides)
    if besides.wish == "approvals":
        return await serve_approvals(road, arrival, asked)
    if besides.wish == "resources":
        return await _listed(road, arrival, asked)
    if besides.wish in ("listen", "stream"):
        return await _opened(road, arrival, asked, besides)
    session = _session_of(arrival)
    if besides.wish == "level":
        session.level = besides.level
    else:
        session.unsubscribe(besides.uri)
    for stream in road.watch.of_session(session):
        if besides.wish == "unsubscribe":
            stream.uris.pop(besides.uri, None)
        else:
            stream.level = besides.level
    return _renewed(road, arrival, session, road.answer_plainly(arrival, asked))


def subscribed(road: Road, arrival: Arrival, ticket: Ticket, answer: Answer, reply: Reply) -> Reply:
    """After a call that subscribes: the session knows of it, and its open streams do. Raises: Refusal."""
    assert arrival.asked is not None
    assert arrival.asked.besides is not None
    if answer.ending is not Ending.OK:
        return reply
    uri, session = arrival.asked.besides.uri, _session_of(arrival)
    session.subscribe(uri)
    road.watch.subscribe(road.watch.of_session(session), uri, _watched(ticket, answer, uri))
    return _renewed(road, arrival, session, reply)


def _greeted(road: Road, arrival: Arrival, asked: Asked, besides: Besides) -> Reply:
    session = road.seals.new_session(_caller(arrival))
    session.capabilities = besides.capabilities
    reply = road.answer_plainly(arrival, asked)
    # A greeting that was refused opens nothing.
    return _renewed(road, arrival, session, reply) if b'"error"' not in reply.body[:64] else reply


async def _listed(road: Road, arrival: Arrival, asked: Asked) -> Reply:
    """What a template's own list says is read on the road; one that says no is left out, and the log says why."""
    items: list[Mapping[str, Any]] = []
    for grant in road.admission.permits.visible(_caller(arrival), "listing"):
        answer, _ = await _call(road, arrival, grant.tool.name, {})
        if answer.ending is Ending.OK and answer.envelope is not None:
            about = {"mimeType": grant.tool.offer.mime_type}
            items += [{**item, **about} for item in answer.envelope.data["items"]]
        elif answer.ending is not Ending.NOT_THERE and answer.envelope is None:
            raise Refusal(answer.ending, answer.text or "", **(answer.details or {}))
    return road.answer_plainly(arrival, asked, items)


async def _opened(road: Road, arrival: Arrival, asked: Asked, besides: Besides) -> Reply:
    """A stream of what this caller may hear of. What it may not is left out of the acknowledgement."""
    caller, session = _caller(arrival), arrival.session if besides.wish == "stream" else None
    if besides.wish == "stream" and session is None:
        return road.answer_plainly(arrival, asked)  # it never greeted, so there is nothing to tell it
    assert besides.told is not None
    stream = WatchStream(
        caller,
        arrival.credential,
        besides.lists,
        besides.told,
        session.id if session else "",
        address=arrival.origin.address,
    )
    road.watch.open(stream)  # first: what the session subscribes to meanwhile is not missed
    try:
        for uri in (session.uris if session else besides.uris)[:MAX_SUBSCRIPTIONS]:
            watched = await _subscribe(road, arrival, uri)
            if watched is not None:
                stream.uris[uri] = watched
        if "resources" in besides.lists:
            stream.listings = [listing async for listing in _listings(road, arrival, caller)]
    except BaseException:
        road.watch.close(stream)
        raise
    reply = road.answer_plainly(arrival, asked, [stream.lists, tuple(stream.uris)])
    return replace(reply, stream=stream)


async def _listings(road: Road, arrival: Arrival, caller: Caller) -> AsyncIterator[Watched]:
    for grant in road.admission.permits.visible(caller, "listing"):
        answer, ticket = await _call(road, arrival, grant.tool.name, {})
        if ticket is not None and answer.ending is Ending.OK and answer.envelope is not None:
            yield Watched(ticket, list_stamp(answer.envelope.data["items"]), "resources")


async def _subscribe(road: Road, arrival: Arrival, uri: str) -> Watched | None:
    found = road.addresses.at(uri)
    tool, variables = found if found is not None else (f"resource:{uri}", {})
    answer, ticket = await _call(road, arrival, f"subscribe:{tool}", variables)
    if ticket is None or answer.ending is not Ending.OK:
        return None
    return _watched(ticket, answer, uri)


def _watched(ticket: Ticket, answer: Answer, uri: str) -> Watched:
    assert answer.envelope is not None
    return Watched(ticket, answer.envelope.data["stamp"], uri)


async def _call(road: Road, arrival: Arrival, tool: str, arguments: dict[str, Any]) -> tuple[Answer, Ticket | None]:
    """One call on the whole road, written down at once: what opens a stream is not held."""
    call, caller = Call(arrival.face.wires[arrival.transport], tool, arguments), _caller(arrival)
    try:
        ticket = road.admission.enter(caller, call, arrival.origin)
    except Refusal as refusal:
        return road.refuse(refusal, call.wire, caller, call, origin=arrival.origin), None
    return await road.travel(ticket), ticket


def _renewed(road: Road, arrival: Arrival, session: SealedSession, reply: Reply) -> Reply:
    arrival.session = session
    header = arrival.keep_session(session, road.seals)
    return reply if header is None else replace(reply, headers=(*reply.headers, header))


def _session_of(arrival: Arrival) -> SealedSession:
    if arrival.session is None:
        raise _needs_session()
    return arrival.session


def _needs_session() -> Refusal:
    text = "This needs a session: send initialize first, and over HTTP the Mcp-Session-Id that its answer carries."
    return Refusal(Ending.MALFORMED, text, reason="session_required")


def _caller(arrival: Arrival) -> Caller:
    assert arrival.caller is not None
    return arrival.caller
