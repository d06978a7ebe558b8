"""The interface between a connection and the application that answers its requests."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from toolgate.faces.reply import Headers, Reply
    from toolgate.model.call import Origin
    from toolgate.servers.framing import Request

H = TypeVar("H")


class Client(Protocol):
    """The client that waits for an answer, as the application sees it."""

    gone: list[Callable[[], None]]
    """Called when the client leaves before its answer is complete."""

    origin: Origin
    """Its address."""

    caller_id: str
    """Whose key was accepted on its connection last."""

    arrival: Any
    """What the application keeps beside the answer until that is sent. Its `leave` is called before what is in `gone`."""

    def known_as(self, caller_id: str) -> None:
        """Its key was accepted."""
        ...

    async def send(self, piece: bytes, status: int = 200, headers: Headers = (), request_id: str = "") -> None:
        """A piece of an answer that is sent in pieces; status and headers count with the first one.

        Waits while the client does not read. What is sent to a client that left is dropped.
        """
        ...

    def send_held(self, reply: Reply) -> None:
        """An answer that the application held back."""
        ...


class Application(Protocol[H]):
    """Answers requests. `H` is the type that it reads a request's head into."""

    headers: Headers
    """Those that every answer has."""

    def read_head(self, request: Request) -> H: ...

    def before_body(self, head: H, client: Client) -> Reply | None:
        """The answer that the head alone decides, or None: the body may be read."""
        ...

    def respond(self, head: H, body: bytes | None, client: Client) -> Coroutine[Any, Any, Reply | None]:
        """`body` is None if it was too large. Returns None if the answer was sent in pieces."""
        ...

    def hold(self, client: Client, reply: Reply, loop: AbstractEventLoop | None) -> None:
        """Call `client.send_held` when the answer may leave: at the end of this turn of the loop; without a loop, now."""
        ...

    def send_held(self) -> None:
        """Everything that is held, now."""
        ...


class PageSite(Protocol):
    """Pages for people beside the faces: all paths below one. Nothing of it is on the road."""

    path: bytes
    """`/console`; what is below it is its own, too."""

    def before_body(self, request: Request, *, served: bool) -> Reply | None:
        """As an application's. `served`: Host and Origin are ours."""
        ...

    async def respond(
        self, request: Request, body: bytes | None, client: Client, *, served: bool, address: str | None
    ) -> Reply | None:
        """`address`: of the client, as far as proxies are trusted."""
        ...

    def close(self) -> None:
        """The server stops: answers without an end come to one."""
        ...
