"""A lock that several processes share and that ends with its holder, however that ends.

On Linux it is a robust mutex of the C runtime in the memory that they share. While nobody else holds it, it is taken and given
back without the kernel, in half a microsecond instead of three; the kernel marks it when its holder dies. Elsewhere it is a
lock of the kernel's on the file.
"""

from __future__ import annotations

import errno
import fcntl
import time
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import Ending, Refusal

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

LOCK_BYTES: Final = 128
"""What a lock takes in shared memory: more than a mutex of any libc, and cache lines of its own."""
WAIT_S: Final = 0.02
"""What it protects takes a few microseconds: whoever holds it for longer was stopped."""
PAUSE_S: Final = 0.0001
SPINS: Final = 20
"""Attempts before the first pause: about as long as a change of the counts on another core takes."""
_SHARED: Final = 1
_ROBUST: Final = 1


def make_lock(memory: mmap.mmap, at: int) -> None:
    """Once, before anybody takes it. Raises: OSError."""
    libc = _libc()
    if libc is None:
        return
    import ctypes  # noqa: PLC0415 (2 ms, for servers of several processes)

    attributes = ctypes.create_string_buffer(LOCK_BYTES)
    mutex = (ctypes.c_char * LOCK_BYTES).from_buffer(memory, at)
    _checked(libc.pthread_mutexattr_init(attributes))
    _checked(libc.pthread_mutexattr_setpshared(attributes, _SHARED))
    _checked(libc.pthread_mutexattr_setrobust(attributes, _ROBUST))
    _checked(libc.pthread_mutex_init(mutex, attributes))
    _checked(libc.pthread_mutexattr_destroy(attributes))


class ProcessLock:
    """The lock that `make_lock` has made. A thread that holds it must not take it again."""

    def __init__(self, memory: mmap.mmap, at: int, file: int) -> None:
        """`file`: of the memory. It is the caller's, and stays open."""
        self._memory: Any = None
        self._handle: Any = file
        self._take: Callable[[Any], int] = _take_file
        self._give: Callable[[Any], object] = _give_file
        libc = _libc()
        if libc is None:
            return
        import ctypes  # noqa: PLC0415 (as above)

        self._memory = (ctypes.c_char * LOCK_BYTES).from_buffer(memory, at)
        self._handle = ctypes.c_void_p(ctypes.addressof(self._memory))
        self._take, self._give = libc.pthread_mutex_trylock, libc.pthread_mutex_unlock
        self._mend = libc.pthread_mutex_consistent

    def __enter__(self) -> None:
        """Raises: Refusal UNAVAILABLE: somebody has held it for `WAIT_S`."""
        found = self._take(self._handle)
        if found:
            self._wait(found)

    def __exit__(self, *_: object) -> None:
        self._give(self._handle)

    def close(self) -> None:
        """Lets go of the memory, which can be closed then."""
        self._memory = None

    def _wait(self, found: int) -> None:
        due, tries = time.monotonic() + WAIT_S, 0
        while found == errno.EBUSY:
            tries += 1
            if tries > SPINS:
                if time.monotonic() >= due:
                    raise uncounted()
                time.sleep(PAUSE_S)
            found = self._take(self._handle)
        if found == errno.EOWNERDEAD:  # it is ours now; what its holder had half done is for the supervisor
            found = self._mend(self._handle)
        if found:
            raise uncounted()


def uncounted() -> Refusal:
    text = "The limits of this server cannot be checked now; try again shortly."
    return Refusal(Ending.UNAVAILABLE, text, reason="limits_unreachable", retry_after_s=1)


def _take_file(file: int) -> int:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return errno.EBUSY
    return 0


def _give_file(file: int) -> None:
    fcntl.lockf(file, fcntl.LOCK_UN)


def _libc() -> Any:
    """The C runtime; None: it has no mutexes that outlive their holder."""
    import ctypes  # noqa: PLC0415 (as above)

    found = ctypes.PyDLL(None)  # keeps the interpreter's lock: what is called here never waits
    return found if hasattr(found, "pthread_mutexattr_setrobust") else None


def _checked(result: int) -> None:
    if result:
        raise OSError(result, "the lock of the shared counts")
