"""Our framing beside two published parsers, on requests that were mutated and cut at random.

The law has two halves: what we read as whole messages, each judge reads as the same messages, or it is one of the few things
that we read and a judge does not (named below, with the rule that says so); and however the bytes are cut, we say the same.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence

import pytest

from tests.servers.byhand import FRAMING
from tests.servers.oracles import Message, h11_reads, llhttp
from toolgate.servers.framing import FramingFault, Reader, Request, TooLarge

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: here\r\nX: 123\r\n\r\n"
SEEDS: Sequence[bytes] = (
    b"POST /rpc HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /healthz HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\nX-T: v\r\n\r\n",
    b"POST http://here/mcp HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\nConnection: keep-alive, x\r\n\r\n",
    b"PUT /a?b=c HTTP/1.1\r\nhost:here\r\ncontent-length:   2  \r\nX-Empty:\r\n\r\n{}",
    b"POST /m HTTP/1.1\r\nHost: here\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 44\r\n\r\n" + HIDDEN,
    b"\r\nOPTIONS /x HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
)
TOKENS: Sequence[bytes] = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b"\x00",
        b"\x0b",
        b"\xff",
        b":",
        b";",
        b",",
        b"#",
        b"?",
        b"%",
        b"*",
    ),
    *(b"0", b"00", b"-1", b"+5", b"0x5", b"5, 5", b"ffffffffffffffff", b"0\r\n\r\n", b'1;a="\r\n"\r\nx\r\n'),
    *(b"HTTP/1.0", b"HTTP/2.0", b"http://here", b"CONNECT ", b"chunked", b" folded\r\n", b"\r\n folded\r\n"),
    *(
        b"Content-Length: 3\r\n",
        b"Content-Length: 0\r\n",
        b"Host: evil\r\n",
        b"Connection: close\r\n",
        b"Trailer: x\r\n",
    ),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding : chunked\r\n"),
    *(b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
)
EXAMPLES = int(os.environ.get("TOOLGATE_DIFFERENTIAL", "4000"))
"""Mutated streams in one run; `make search` asks for more, from a seed of its own."""
START = int(os.environ.get("TOOLGATE_SEED", "20261117"))


def ours(pieces: Sequence[bytes]) -> tuple[list[Message], str]:
    """The messages that were read, and how it ended: `more`, `last` or `fault` (which one may depend on what came first)."""
    reader: Reader[Request] = Reader(FRAMING, lambda request: request)
    messages: list[Message] = []
    head: Request | None = None
    for piece in pieces:
        reader.arrived += piece
        try:
            while True:
                if head is None:
                    found = reader.take_head()
                    if found is None:
                        break
                    head = found[0]
                body = reader.take_body()
                if body is None and reader.has_more():
                    continue
                if body is None:
                    break
                messages.append((head.method, head.path + (b"?" + head.query if head.query else b""), body))
                last, head = not head.keep_alive, None
                if last:
                    return messages, "last"
        except (FramingFault, TooLarge):
            return messages, "fault"
    return messages, "more"


def mutated(rng: random.Random) -> bytes:
    stream = b"".join(rng.choice(SEEDS) for _ in range(rng.randint(1, 3)))
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(stream) + 1)
        match rng.randrange(5):
            case 0:
                stream = stream[:at] + rng.choice(TOKENS) + stream[at:]
            case 1:
                stream = stream[:at] + stream[at + rng.randint(1, 4) :]
            case 2:
                stream = stream[:at] + bytes([rng.randrange(256)]) + stream[at + 1 :]
            case 3:
                end = rng.randrange(at, len(stream) + 1)
                stream = stream[:end] + stream[at:end] + stream[end:]
            case _:
                lines = stream.split(b"\r\n")
                lines.insert(rng.randrange(len(lines)), rng.choice(TOKENS).strip(b"\r\n"))
                stream = b"\r\n".join(lines)
    return stream


def cut(rng: random.Random, stream: bytes) -> list[bytes]:
    places = sorted(rng.sample(range(len(stream) + 1), min(len(stream) + 1, rng.randint(0, 6))))
    return [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True) if start < end]


def plain(message: Message) -> Message:
    """A judge keeps the target as it was sent; we keep what an absolute one means."""
    method, target, body = message
    lower = target.lower()
    for scheme in (b"http://", b"https://"):
        if lower.startswith(scheme):
            rest = target[len(scheme) :]
            start = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
            target = rest[start:] if rest[start:].startswith(b"/") else b"/" + rest[start:]
    return method, target[:-1] if target.endswith(b"?") and target.count(b"?") == 1 else target, body


METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE")


def is_known_difference(stream: bytes, messages: list[Message], name: str) -> bool:
    """What we read although llhttp does not: any method (RFC 9110 9.1: an open set; llhttp knows a list), and what stands
    before rubbish on a connection that ends there anyway."""
    others = any(method not in METHODS for method, _, _ in messages)
    return name == "llhttp" and (others or b"close" in stream.lower() or b"1.0" in stream)


def without_upgrade(stream: bytes) -> bytes:
    """RFC 9110 7.8: a server may ignore the header, as if it had another name. llhttp cannot."""
    return re.sub(rb"(?i)upgrade", b"xpgrade", stream)


def judge_all(stream: bytes, where: str) -> None:
    messages, ending = ours([stream])
    neutral = without_upgrade(stream)
    as_neutral, its_ending = ours([neutral])
    assert ([tuple(map(len, one)) for one in messages], ending) == (
        [tuple(map(len, one)) for one in as_neutral],
        its_ending,
    ), where
    if ending == "fault" or not messages:
        return
    for name, judge in (("llhttp", llhttp), ("h11", h11_reads)):
        judged = judge(neutral)
        if len(judged) < len(messages):
            assert is_known_difference(stream, messages, name), f"{name} does not read what we read; {where}"
        else:
            assert [plain(one) for one in judged[: len(messages)]] == as_neutral, f"{name} reads it otherwise; {where}"


def compare(number: int) -> None:
    rng = random.Random(START + number)
    stream = mutated(rng)
    where = f"seed {START + number}: {stream!r}"
    said = ours([stream])
    assert ours(cut(rng, stream)) == said, where
    assert ours([bytes([byte]) for byte in stream]) == said, where
    judge_all(stream, where)


@pytest.mark.search
@pytest.mark.parametrize("part", range(4))
def test_what_we_read_both_judges_read_alike_however_it_is_cut(part: int) -> None:
    for number in range(part, EXAMPLES, 4):
        compare(number)


def test_the_seeds_are_read_whole_by_all_three() -> None:
    """Without this, a reader that refuses everything would agree with everybody."""
    for seed in SEEDS:
        messages, ending = ours([seed])
        assert (len(messages), ending) == (1, "more"), seed
        for judge in (llhttp, h11_reads):
            assert [plain(one) for one in judge(without_upgrade(seed))] == ours([without_upgrade(seed)])[0], seed


def test_every_odd_byte_at_every_place_is_refused_or_read_alike() -> None:
    """The whole neighbourhood of each seed, not a sample."""
    for seed in SEEDS:
        for at in range(len(seed)):
            for odd in b"\x00\t\n\r :;,\x7f\xff":
                stream = seed[:at] + bytes([odd]) + seed[at + 1 :]
                judge_all(stream, repr(stream))
