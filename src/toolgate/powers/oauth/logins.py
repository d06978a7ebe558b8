"""A login to an upstream: a file in the secrets directory, and how its access token is kept good.

Several processes share the file. Whoever finds its token old takes the file's lock, reads it again, and asks for a new token only
if nobody else has put one there meanwhile. An authorization server that sees one refresh token twice may end the whole login.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolgate.atomic_file import replace_file
from toolgate.errors import StartRefused
from toolgate.powers.oauth.exchange import OAuthClient, OAuthFailed, Tokens, TokenWire, tokens_of

MAX_FILE_BYTES: Final = 131_072
MARGIN_S: Final = 10.0
"""A token that ends sooner is renewed first: a request takes a moment to arrive."""
LOCK_S: Final = 30.0
"""How long another process may take to renew a token: more than a request to its server may take."""
LOOK_S: Final = 0.02
_ENDED: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Answers that no later attempt will change."""


class LoginState(Struct, frozen=True):
    """What the file holds."""

    upstream: str
    issuer: str
    resource: str
    token_endpoint: str
    client_id: str
    access: str
    refresh: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    client_secret: str = ""
    """That of a client that was registered for this login."""
    client_secret_from: str = ""
    """Where that of a configured client is kept."""
    auth_method: str = "none"
    revocation_endpoint: str | None = None
    redirect_port: int = 0
    """Of the registered client; 0: it has none."""
    version: int = 1

    def with_tokens(self, tokens: Tokens, wall: float) -> LoginState:
        expires_at = None if tokens.lives_s is None else wall + tokens.lives_s
        refresh, scope = tokens.refresh or self.refresh, tokens.scope or self.scope
        return replace(self, access=tokens.access, refresh=refresh, expires_at=expires_at, scope=scope)

    def client(self, read: Callable[[str], str]) -> OAuthClient:
        """Raises: OAuthFailed."""
        secret = self.client_secret
        if self.client_secret_from:
            try:
                secret = read(self.client_secret_from)
            except StartRefused as fault:
                raise OAuthFailed("no_secret", str(fault).partition("\n")[0]) from None
        return OAuthClient(self.client_id, secret, self.auth_method)


class LoginFile:
    """One login, mode 0600, replaced whole or not at all."""

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / name
        self._lock = directory / f".{name}.lock"

    def mark(self) -> tuple[int, int] | None:
        """Changes when the file does; None: there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def read(self) -> LoginState | None:
        """Raises: OAuthFailed: it is open to others, or not a login."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError:
            raise OAuthFailed("bad_login", f"{self._path} cannot be read") from None
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_mode & 0o077:
                raise OAuthFailed("bad_login", f"{self._path} is open to other users; run chmod 600 on it")
            raw = file.read(MAX_FILE_BYTES)
        try:
            return msgspec.json.decode(raw, type=LoginState)
        except msgspec.MsgspecError:
            raise OAuthFailed("bad_login", f"{self._path} is not a login; log in again") from None

    def write(self, state: LoginState) -> None:
        """Raises: OAuthFailed."""
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(state), 0o600)
        except OSError as fault:
            raise OAuthFailed("bad_login", f"{self._path} cannot be written ({fault.strerror})") from None

    def delete(self) -> bool:
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Alone among all processes. Raises: OAuthFailed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._lock.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._lock, flags, 0o600)
        except OSError as fault:
            raise OAuthFailed("bad_login", f"{self._lock} cannot be opened ({fault.strerror})") from None
        try:
            await _locked(descriptor)
            yield
        finally:
            os.close(descriptor)  # and with it the lock


async def _locked(descriptor: int) -> None:
    due = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > due:
                raise OAuthFailed("login_busy", "another process does not end renewing the login") from None
            await asyncio.sleep(LOOK_S)
        else:
            return


class Login:
    """The login of one upstream, in this process."""

    def __init__(
        self,
        upstream: str,
        file: LoginFile,
        wire: Callable[[], TokenWire],
        read: Callable[[str], str],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`read`: secrets by reference."""
        self._upstream = upstream
        self._file = file
        self._wire = wire
        self._read = read
        self._wall = wall
        self._renewing: asyncio.Task[LoginState] | None = None
        """Shared by all who wait for it, and ended by none of them: a new refresh token that nobody writes down is lost."""
        self._state: LoginState | None = None
        self._mark: tuple[int, int] | None = None
        self._ended: str | None = None
        """A refresh token that its server does not take any more: it is not shown again."""

    async def token(self, refused: str | None = None) -> str:
        """An access token that is good for a moment. `refused`: one that the upstream did not take.

        Raises: OAuthFailed.
        """
        state = self._current()
        if state.access != refused and not self._is_old(state):
            return state.access
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renewed(state.access))
            self._renewing.add_done_callback(_looked_at)
        return (await asyncio.shield(self._renewing)).access

    def _current(self) -> LoginState:
        mark = self._file.mark()
        if self._state is None or mark != self._mark:
            state = self._file.read()
            if state is None:
                raise OAuthFailed("no_login", f"nobody is logged in; run toolgate upstream login {self._upstream}")
            if state.upstream != self._upstream:
                raise OAuthFailed("bad_login", "the login is that of another upstream")
            self._state, self._mark = state, mark
        return self._state

    def _is_old(self, state: LoginState) -> bool:
        return state.expires_at is not None and state.expires_at - MARGIN_S <= self._wall()

    async def _renewed(self, stale: str) -> LoginState:
        async with self._file.locked():
            self._mark = None
            state = self._current()
            if state.access != stale:
                return state  # another process was faster
            if state.refresh is None or state.refresh == self._ended:
                raise self._over()
            form = {"grant_type": "refresh_token", "refresh_token": state.refresh, "resource": state.resource}
            try:
                answer = await self._wire().post(state.token_endpoint, form, state.client(self._read))
            except OAuthFailed as fault:
                if fault.reason in _ENDED:
                    self._ended = state.refresh
                    raise self._over() from None
                raise
            self._file.write(state.with_tokens(tokens_of(answer), self._wall()))
            self._mark = None
            return self._current()

    def _over(self) -> OAuthFailed:
        return OAuthFailed("login_ended", f"the login has ended; run toolgate upstream login {self._upstream}")


def _looked_at(task: asyncio.Task[LoginState]) -> None:
    """Who waited may have left: then nobody else asks how it ended."""
    if not task.cancelled():
        task.exception()
