"""Several processes behind one port: started, replaced when they die, asked together, and stopped together.

The supervisor holds the listening socket, which they inherit: a connection that waits to be accepted is lost with no process,
the port is ours while one is replaced, and port 0 is chosen once. It serves nothing itself and opens neither log nor stores.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from toolgate import __version__
from toolgate.errors import ExitCode
from toolgate.gate.counted import CountTable, make_table
from toolgate.model.clock import rfc3339
from toolgate.servers.lifecycle import LAST_RESORT_S
from toolgate.servers.processes.control import FOLDER
from toolgate.servers.processes.link import Link, LinkLost, Note
from toolgate.servers.processes.place import WorkerPlace

if TYPE_CHECKING:
    from toolgate.settings import Settings

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
"""Before a process that died is replaced: twice as long each time, from the beginning again when one has lived for so long."""
STEADY_S: Final = 30.0
ASK_S: Final = 5.0
"""For a process to tell its state. One that is stopped tells nothing, and the others are shown."""
RELOAD_S: Final = 60.0
_START: Final = "from toolgate.cli.running.worker import main; main()"
_log: Final = logging.getLogger("toolgate.workers")


class Worker(Struct, eq=False):
    """One place among the processes, and who has it now."""

    number: int
    process: asyncio.subprocess.Process | None = None
    link: Link | None = None
    replaced: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    told: Mapping[str, Any] = {}
    digests: Mapping[str, str] = {}

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None


class Supervisor:
    def __init__(self, settings: Settings, flags: dict[str, Any], processes: int, listener: socket.socket) -> None:
        """Raises: OSError: the shared counts cannot be made."""
        self._settings, self._flags, self._listener = settings, flags, listener
        descriptor = make_table(processes)
        self._table_file = descriptor
        self._table = CountTable(os.dup(descriptor), processes, -1)
        self._workers = [Worker(number) for number in range(processes)]
        folder = settings.paths.state / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owner_path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.owner"
        self._began = time.time()
        self._stopping = False
        self._failed: int | None = None
        self._ended = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()

    # Start and stop ----------------------------------------------------------------------------------------------------

    async def start(self) -> Mapping[str, Any] | None:
        """What the owner says of itself when all serve; None: one of them could not start, and has said why."""
        for worker in self._workers:
            self._keeping.append(asyncio.get_running_loop().create_task(self._keep(worker)))
            if worker.number == 0:  # migrations, old runs and leftovers are seen to by one, before the others come
                await self._until(worker)
        for worker in self._workers:
            await self._until(worker)
        return None if self._failed is not None or self._stopping else self._workers[0].told

    async def _until(self, worker: Worker) -> None:
        """It is ready, or we stop."""
        ready = asyncio.ensure_future(worker.ready.wait())
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        ended.cancel()

    async def ended(self) -> int:
        """Waits until all have ended after `stop`."""
        await self._ended.wait()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        with suppress(OSError):
            self._owner_path.unlink(missing_ok=True)
        self._table.close()
        os.close(self._table_file)
        return ExitCode.OK if self._failed is None else self._failed

    def stop(self) -> None:
        """All drain. Again: they do not wait."""
        if not self._stopping:
            self._stopping = True
            self._listener.close()
            asyncio.get_running_loop().call_later(self._settings.server.drain_seconds + LAST_RESORT_S, self._kill)
        self._ended.set()
        self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.returncode is None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(number)

    # One place -------------------------------------------------------------------------------------------------------

    async def _keep(self, worker: Worker) -> None:
        """Somebody is in this place until we stop."""
        pause_s = FIRST_PAUSE_S
        while not self._stopping:
            began = time.monotonic()
            was_ready = worker.ready.is_set()
            code = await self._run(worker)
            self._table.forget(worker.number)
            if self._ended.is_set():
                return
            if not was_ready and not worker.ready.is_set():
                self._failed = code if code > 0 else ExitCode.FAILED  # it has said why
                self.stop()
                return
            worker.replaced += 1
            lived = time.monotonic() - began
            pause_s = FIRST_PAUSE_S if lived >= STEADY_S else pause_s
            _log.warning("worker %d ended (%s) and is replaced in %.1f s", worker.number, _how(code), pause_s)
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    async def _run(self, worker: Worker) -> int:
        """The exit code of one process in this place."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        place = WorkerPlace(
            worker.number,
            len(self._workers),
            theirs.fileno(),
            self._listener.fileno(),
            self._table_file,
            str(self._owner_path),
            self._flags,
        )
        worker.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # nothing is imported from where the server was started
            "-c",
            _START,
            place.as_text(),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(place.link, place.listener, place.table),
            start_new_session=True,  # what a terminal sends is for us, and we tell them
        )
        theirs.close()
        if self._stopping:
            self._signal(signal.SIGTERM)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker.link = Link(reader, writer, self._answer, lambda word: self._hear(worker, word))
        listening = asyncio.get_running_loop().create_task(worker.link.listen())
        code = await worker.process.wait()
        worker.link.close()
        await asyncio.gather(listening, return_exceptions=True)
        worker.link = None
        return code

    def _hear(self, worker: Worker, word: dict[str, Any]) -> None:
        if "ready" in word:
            is_first = not worker.ready.is_set()
            worker.told, worker.digests = word["ready"], word["digests"]
            worker.ready.set()
            if not is_first:
                _log.warning("worker %d serves again", worker.number)
                self._soon(self._agree())
        elif "changed" in word or "answer" in word:
            for other in self._others(worker):
                assert other.link is not None
                other.link.tell(word)
        elif "cancel" in word:
            self._soon(self._cancel(worker, word["cancel"]))

    def _soon(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._keeping.append(task)
        task.add_done_callback(self._keeping.remove)

    def _others(self, worker: Worker | None = None) -> list[Worker]:
        return [each for each in self._workers if each is not worker and each.link is not None and each.link.is_open]

    async def _cancel(self, worker: Worker, about: Mapping[str, Any]) -> None:
        """A call that is under way in exactly one of the others."""
        others = self._others(worker)
        found = await self._ask_all({"do": "find", "about": about}, others, ASK_S)
        having = [other for other in others if found.get(other.number, {}).get("found")]
        if len(having) == 1 and found[having[0].number]["found"] == 1 and having[0].link is not None:
            having[0].link.tell({"cancel": about})

    # All of them -----------------------------------------------------------------------------------------------------

    async def _ask_all(
        self, question: Mapping[str, Any], workers: list[Worker], seconds: float
    ) -> dict[int, dict[str, Any]]:
        """By number; who does not answer in time is not there."""

        async def ask(worker: Worker) -> tuple[int, dict[str, Any]] | None:
            try:
                assert worker.link is not None
                async with asyncio.timeout(seconds):
                    return worker.number, await worker.link.ask(question)
            except (LinkLost, TimeoutError):
                return None

        found = await asyncio.gather(*(ask(worker) for worker in workers))
        return dict(each for each in found if each is not None)

    async def _answer(self, question: dict[str, Any], _note: Note) -> Mapping[str, Any]:
        """What one of them asks of all."""
        if question["do"] != "numbers":
            return {"failed": "nothing that can be asked"}
        found = await self._ask_all(question, self._others(), ASK_S)
        return {"numbers": [each["numbers"] for each in found.values() if each.get("numbers")]}

    async def status(self) -> dict[str, Any]:
        found = await self._ask_all({"do": "status"}, self._others(), ASK_S)
        owner = found.get(0) or next(iter(found.values()), {})
        shown = [self._shown(worker, found.get(worker.number)) for worker in self._workers]
        checks = {name: all(each["checks"][name] for each in found.values()) for name in owner.get("checks", {})}
        checks["workers"] = all(worker["answers"] for worker in shown)
        if owner and not owner["limits"]["shared"]:
            owner["limits"]["held"] = self._table.all_held()
        kept: dict[str, Any] = {
            name: owner[name] for name in ("upstreams", "stores", "limits", "reload") if name in owner
        }
        return {
            "pid": os.getpid(),
            "version": __version__,
            "url": self.told.get("url", ""),
            "began": rfc3339(self._began),
            "ready": all(checks.values()),
            "checks": checks,
            "workers": shown,
            **_NOTHING_KNOWN,
            **kept,
        }

    @property
    def told(self) -> Mapping[str, Any]:
        return self._workers[0].told

    def _shown(self, worker: Worker, found: dict[str, Any] | None) -> dict[str, Any]:
        known = found["workers"][0] if found is not None else {"run": None, "calls": [], "streams": 0}
        more = {"pid": worker.pid, "number": worker.number, "replaced": worker.replaced}
        return {**known, **more, "answers": found is not None}

    async def reload(self, way: str) -> dict[str, Any]:
        """In all of them, or in none: each reads and checks, then each takes over."""
        async with self._turn:
            workers = self._others()
            found = await self._ask_all({"do": "prepare"}, workers, RELOAD_S)
            reason = next((each["refused"] for each in found.values() if "refused" in each), "")
            if not reason and len(found) < len(self._workers):
                reason = "A worker does not answer.\nLook at toolgate status, and try again."
            if reason:
                await self._ask_all({"do": "refuse", "way": way, "reason": reason}, workers, RELOAD_S)
                return {"reloaded": False, "reason": reason}
            done = await self._ask_all({"do": "commit", "way": way}, workers, RELOAD_S)
        for number, each in done.items():
            self._workers[number].digests = each.pop("digests", {})
        failed = [each for each in done.values() if not each.get("reloaded")]
        if failed or len(done) < len(workers):
            reason = failed[0].get("reason", "a worker failed") if failed else "a worker ended meanwhile"
            return {"reloaded": False, "reason": f"Not every worker has taken it over: {reason}."}
        return done[0]

    async def _agree(self) -> None:
        """Who came back has read what is on disk now. If that is not what the others serve, they read it, too."""
        await asyncio.sleep(0)
        if len({tuple(sorted(worker.digests.items())) for worker in self._workers}) > 1 and not self._stopping:
            await self.reload("a replaced worker")


_NOTHING_KNOWN: Final[Mapping[str, Any]] = {
    "upstreams": [],
    "stores": {"environment": "unknown", "notes": [], "silent": []},
    "limits": {"perCaller": 0, "total": 0, "perMinute": 0, "held": 0, "shared": False, "fault": "no worker answers"},
    "reload": {"serves": {}, "count": 0, "last": None, "differs": [], "needRestart": [], "refused": None},
}


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
