"""Step 6: run a handler with a deadline, so that whatever it does becomes one typed outcome.

Three ways to run, chosen by what the handler is (`toolgate.model.tool.Run`):
- `inline`: called directly; it promised to return within microseconds.
- `async def`: a task of its own; at the deadline the answer leaves and the task is cancelled.
- `def`: a worker thread; at the deadline the answer leaves and the thread is interrupted.
The caller's slot comes back when the handler has really ended, which after a deadline may be later than the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolgate.errors import Happening, StoreUnavailable, ToolError
from toolgate.model.tool import Result

if TYPE_CHECKING:
    from toolgate.model.tool import Context, Tool


class Outcome(Struct):
    """How a handler ended. `reason` says more than the happening where there is more to say."""

    happening: Happening
    result: Result
    reason: str | None = None
    text: str | None = None
    data_json: bytes = b"null"
    """The result's data, encoded once at step 7."""
    stdout: str = ""


class Execution:
    """One handler under way. `cancel` is for a caller that went away; `on_end` fires once, when the handler has ended."""

    def __init__(self, tool: Tool, on_end: Callable[[], None], *, cancelled: bool = False) -> None:
        self._tool = tool
        self._on_end = on_end
        self._cancel: Callable[[], None] = _nothing
        self.cancelled = cancelled

    def cancel(self) -> None:
        self.cancelled = True
        self._cancel()

    async def run(self, context: Context, arguments: dict[str, Any]) -> Outcome:
        """Never raises: every exception of the handler becomes an outcome."""
        run = self._tool.run
        if inspect.iscoroutinefunction(run):
            future: asyncio.Future[Any] = asyncio.ensure_future(_contained(run(context, arguments)))
            self._cancel = future.cancel  # type: ignore[assignment] # the returned bool is of no use here
        else:
            future, interrupt = _in_thread(lambda: run(context, arguments), name=f"tool-{self._tool.name}")
            # A thread is not stopped because its caller left: its effect would be torn. Only the deadline stops it.
            self._cancel = _nothing
        future.add_done_callback(lambda _: self._on_end())
        if self.cancelled:
            self._cancel()  # the caller left before we got here
        done, _ = await asyncio.wait({future}, timeout=self._tool.deadline_s)
        if done:
            return settle(future.result, cancelled=self.cancelled)
        future.add_done_callback(_forget)
        if inspect.iscoroutinefunction(run):
            future.cancel()
        else:
            interrupt()
        return _failed("deadline_exceeded", f"The tool did not answer within {self._tool.deadline_s:g} s.")


def settle(ended: Callable[..., Any], *arguments: Any, cancelled: bool = False) -> Outcome:
    """Call what ends a handler and make its end an outcome. For an inline handler that is the handler itself."""
    try:
        result = ended(*arguments)
    except ToolError as said:
        return _said(said)
    except asyncio.CancelledError:
        return _failed("cancelled", "The call was cancelled.") if cancelled else _failed("crashed", "The tool failed.")
    except StoreUnavailable:
        return _failed("store_unavailable", "A store that the tool needs does not answer.")
    except TimeoutError:
        return _failed("deadline_exceeded", "The tool's work did not end in time.")
    except BaseException:  # noqa: BLE001 (the border: whatever a handler raises, also SystemExit, is one outcome)
        return _failed("crashed", "The tool failed.")
    if not isinstance(result, Result):
        return bad_output("the answer is not a Result")
    if result.success:
        return Outcome(Happening.OK, result)
    return Outcome(Happening.TOOL_SAID_NO, result, (result.code or "failed").lower(), result.message)


def _said(said: ToolError) -> Outcome:
    """The tool says no. What it says of its arguments (INVALID_INPUT) is a fault of the arguments, as if a schema had said it."""
    result = error_result(said.code, said.text, said.data)
    if said.code == "INVALID_INPUT":
        reason = said.data.get("reason") if isinstance(said.data, dict) else None
        return Outcome(Happening.BAD_ARGUMENTS, result, reason or "invalid_input")
    return Outcome(
        Happening.NOT_THERE if said.missing else Happening.TOOL_SAID_NO, result, said.code.lower(), said.text
    )


def _failed(reason: str, text: str) -> Outcome:
    return Outcome(Happening.TOOL_FAILED, error_result("EXECUTION_FAILED", text, {"reason": reason}), reason, text)


def bad_output(text: str) -> Outcome:
    """Step 7's verdict. `text` says what kind of nonsense, never the nonsense itself."""
    return Outcome(
        Happening.BAD_OUTPUT,
        error_result("INVALID_OUTPUT", f"Invalid tool output: {text}.", None),
        "invalid_output",
        text,
    )


def error_result(code: str, text: str, data: Any) -> Result:
    return Result(success=False, is_error=True, code=code, message=f"{code}: {text}", data=data, exit_code=1)


class _Interrupted(BaseException):
    """Raised inside a handler's thread at its deadline. Not an Exception, so that `except Exception` does not keep it."""


def _in_thread(work: Callable[[], Any], name: str) -> tuple[asyncio.Future[Any], Callable[[], None]]:
    """A daemon thread of its own: one that never ends holds its caller's slot, never a shared pool or the shutdown."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, fault: BaseException | None) -> None:
        if future.cancelled():
            return
        if fault is None:
            future.set_result(result)
        else:
            # StopIteration cannot be set on a future, SystemExit would end the loop: both are a crash of the handler.
            future.set_exception(
                fault if isinstance(fault, Exception) and not isinstance(fault, StopIteration) else RuntimeError()
            )

    def body() -> None:
        result, fault = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 (crosses the thread border and is settled on the loop)
            fault = raised
        with contextlib.suppress(RuntimeError):  # a closed loop: the server has stopped and nobody waits any more
            loop.call_soon_threadsafe(settle, result, fault)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()

    def interrupt() -> None:
        if thread.ident is not None and thread.is_alive():
            import ctypes  # noqa: PLC0415 (2 ms, for the handler that overruns)

            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Interrupted))

    return future, interrupt


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    """asyncio lets SystemExit and KeyboardInterrupt of a task end the whole loop; a handler's are its own crash."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt):
        raise RuntimeError from None


def _forget(future: asyncio.Future[Any]) -> None:
    """What a handler says after its deadline is nobody's: retrieved, so that the loop does not complain of it."""
    if not future.cancelled():
        future.exception()


def _nothing() -> None:
    pass
