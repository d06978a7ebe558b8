"""Steps 6 and 7: run a handler with a deadline, so that whatever it does becomes one typed outcome, and look at what came out.

A tool may answer arguments that need only arithmetic or memory at once (`Tool.at_once`). Otherwise there are three ways to
run, chosen by what the handler is (`toolgate.model.tool.Run`):
- `inline`: called directly; it promised to return within microseconds.
- `async def`: a task of its own; at the deadline the answer leaves and the task is cancelled.
- `def`: a worker thread; at the deadline the answer leaves and the thread is interrupted.
A call to an upstream is awaited in place: its client keeps the deadline, so that what was sent can be told as in doubt.
The caller's slot comes back when the handler has really ended, which after a deadline may be later than the answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from toolgate.errors import OK, Ending, StoreUnavailable, ToolError, UpstreamFailed, WorkFailed
from toolgate.gate.floor import DECISIONS
from toolgate.gate.sessions.asking import ask_fault, undeclared
from toolgate.gate.validate import compile_schema
from toolgate.model import strictjson
from toolgate.model.offers import CONTENT
from toolgate.model.threads import UNDER_WAY, start_soon
from toolgate.model.tool import Result
from toolgate.model.work import Work

if TYPE_CHECKING:
    from toolgate.gate.admit import Grant
    from toolgate.model.call import Call
    from toolgate.model.tool import AtOnce, Context, Tool


UNNAMED: Final = "failed"
"""The reason of a tool that says no without a code, or with one that it may not use."""


MAX_CHAIN: Final = 32
"""Faults that led to a fault: a handler has a few, and one that leads back to itself must not hold us."""


class Outcome(Struct):
    """How a handler ended. `reason` is more specific than `ending`, where there is something more specific to say."""

    ending: Ending
    result: Result
    reason: str | None = None
    text: str | None = None
    data_json: bytes = b"null"
    """The result's data, encoded once at step 7."""
    details_json: bytes = b"null"
    """Likewise, the details of a failure."""
    stdout: str = ""
    was_tried: bool = True
    """False: its arguments were refused at step 4, and no handler has seen them."""
    retry_after_s: int | None = None


class Execution:
    """One handler under way. `cancel` is for a caller that went away; `on_end` fires once, when the handler has ended."""

    _turn: asyncio.Future[None] | None = None
    """Done when the handler has ended, or its time is over."""
    _outcome: Outcome | None = None
    """Of a handler in a thread, when that has ended."""

    def __init__(self, tool: Tool, on_end: Callable[[], None], *, cancelled: bool = False) -> None:
        self._tool = tool
        self._on_end = on_end
        self._cancel: Callable[[], object] = _nothing
        self.cancelled = cancelled

    def cancel(self) -> None:
        self.cancelled = True
        self._cancel()

    def run(self, context: Context, arguments: dict[str, Any]) -> Coroutine[Any, Any, Outcome]:
        """Never raises: every exception of the handler becomes an outcome."""
        tool = self._tool
        if tool.foreign is not None:
            return self._relay(context, arguments)
        return (self._as_task if inspect.iscoroutinefunction(tool.run) else self._in_thread)(context, arguments)

    async def _as_task(self, context: Context, arguments: dict[str, Any]) -> Outcome:
        self._threads: set[asyncio.Future[Any]] = set()
        """Of the handler's own (`model.threads`): it has not ended before they have."""
        around = copy_context()
        around.run(UNDER_WAY.set, self._threads)
        handler: Any = partial(self._tool.run, context, arguments)
        task = asyncio.get_running_loop().create_task(_contained(handler), context=around)
        self._cancel = task.cancel
        task.add_done_callback(self._task_ended)
        if self.cancelled:
            task.cancel()  # the caller left before we got here
        await self._until_late()
        if task.done():
            return settle(task.result, cancelled=self.cancelled)
        task.add_done_callback(_forget)
        task.cancel()
        return self._too_late()

    async def _in_thread(self, context: Context, arguments: dict[str, Any]) -> Outcome:
        """A thread is not stopped because its caller left: its effect would be torn. Only the deadline stops it."""
        work = partial(self._tool.run, context, arguments)
        try:
            interrupt = start_soon(work, self._thread_ended, name=f"tool-{self._tool.name}")
        except WorkFailed as fault:
            self._ended()  # there is no handler that could end
            return _failed(fault.reason, str(fault))
        del work  # what the arguments hold is the handler's alone
        await self._until_late()
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            interrupt(_Interrupted)
            return self._too_late()
        return outcome

    async def _until_late(self) -> None:
        """The handler has ended, or its time is over."""
        loop = asyncio.get_running_loop()
        turn = self._turn = loop.create_future()  # not `asyncio.wait`, which does the same at three times the cost
        late = loop.call_later(self._tool.deadline_s, _wake, turn)
        try:
            await turn
        finally:
            late.cancel()

    def _too_late(self) -> Outcome:
        return _failed("deadline_exceeded", f"The tool did not answer within {self._tool.deadline_s:g} s.")

    async def _relay(self, context: Context, arguments: dict[str, Any]) -> Outcome:
        """A call to an upstream keeps its own deadline and stops when it is cancelled: it needs no task of its own."""
        run: Any = self._tool.run
        work = Work(run(context, arguments))
        self._cancel = work.cancel
        if self.cancelled:
            work.cancel()
        try:
            return _settled(await work)
        except asyncio.CancelledError as fault:
            if not self.cancelled:
                raise  # whoever carries the call is ended, and not the call alone
            return _broken(fault, cancelled=True)
        except BaseException as fault:  # noqa: BLE001 (the border, as in `settle`)
            return _broken(fault, cancelled=False)
        finally:
            self._ended()

    def _thread_ended(self, result: Any, fault: BaseException | None) -> None:
        # SystemExit and CancelledError of a thread are a crash like any other: it ended nobody but itself.
        self._outcome = _settled(result) if fault is None else _broken(fault, cancelled=False)
        _wake(self._turn)
        self._ended()

    def _task_ended(self, _future: asyncio.Future[Any]) -> None:
        """Also called for each thread that the handler left behind; the last one ends it."""
        _wake(self._turn)
        if self._threads:
            self._cancel = _nothing
            next(iter(self._threads)).add_done_callback(self._task_ended)
        else:
            self._ended()

    def _ended(self) -> None:
        """Who asked for the call may hold us for longer than the handler's task is wanted; and what is told of the end holds
        the call, which holds us: only the collector would find the two."""
        on_end, self._on_end, self._cancel = self._on_end, _nothing, _nothing
        on_end()


def settle(ended: Callable[..., Any], *arguments: Any, cancelled: bool = False) -> Outcome:
    """Call what ends a handler and make its end an outcome. For an inline handler that is the handler itself."""
    try:
        result = ended(*arguments)
    except BaseException as fault:  # noqa: BLE001 (the border: whatever a handler raises, also SystemExit, is one outcome)
        return _broken(fault, cancelled=cancelled)
    return _settled(result)


def settle_at_once(at_once: AtOnce, context: Context, arguments: dict[str, Any]) -> Outcome | None:
    """None: the handler has to run. No intent is on record, so no power is handed out."""
    try:
        result = at_once(context.clock, context.memory, arguments)
    except BaseException as fault:  # noqa: BLE001 (the border, as in `settle`)
        return _broken(fault, cancelled=False)
    return None if result is None else _settled(result)


def _broken(fault: BaseException, *, cancelled: bool) -> Outcome:
    _let_go(fault)
    return _fault(fault, cancelled=cancelled)


def _settled(result: Any) -> Outcome:
    if isinstance(result, Result):
        if result.success:
            return Outcome(OK, result)
        return Outcome(Ending.TOOL_SAID_NO, result, _reason_of(result.code), result.message)
    if type(result) is Outcome:
        return result  # of a tool that another process of this server ran
    return bad_output("the answer is not a Result")


def _let_go(fault: BaseException) -> None:
    """A fault remembers every frame it came through, the handler's and ours, and ours lead back to it: all that they hold
    (a call's files) would be kept until the collector comes."""
    before: BaseException | None = fault
    for _ in range(MAX_CHAIN):
        if before is not None:
            before.__traceback__ = None
            before = before.__cause__ or before.__context__


def _fault(fault: BaseException, *, cancelled: bool) -> Outcome:
    match fault:
        case ToolError():
            return _said(fault)
        case UpstreamFailed():
            return _upstream_failed(fault)
        case asyncio.CancelledError() if cancelled:
            return _failed("cancelled", "The call was cancelled.")
        case StoreUnavailable():
            return _failed("store_unavailable", "A store that the tool needs does not answer.")
        case WorkFailed():
            return _failed(fault.reason, str(fault))
        case TimeoutError():
            return _failed("deadline_exceeded", "The tool's work did not end in time.")
        case _:
            return _failed("crashed", "The tool failed.")


def _said(said: ToolError) -> Outcome:
    """The tool says no. What it says of its arguments (INVALID_INPUT) is a fault of the arguments, as if a schema had said it."""
    result = error_result(said.code, said.text, said.data)
    if said.code == "INVALID_INPUT":
        reason = said.data.get("reason") if isinstance(said.data, dict) else None
        return Outcome(Ending.BAD_ARGUMENTS, result, reason or "invalid_input", said.text)
    ending = Ending.NOT_THERE if said.missing else Ending.TARGET_FAILED if said.elsewhere else Ending.TOOL_SAID_NO
    return Outcome(ending, result, _reason_of(said.code), said.text)


def _upstream_failed(fault: UpstreamFailed) -> Outcome:
    result = error_result(fault.ending.name, fault.text, {"reason": fault.reason, **fault.details})
    return Outcome(fault.ending, result, fault.reason, fault.text, retry_after_s=fault.retry_after_s)


def _reason_of(code: Any) -> str:
    """The code in small letters. What is not text is refused at step 7, whatever is said here."""
    return code.lower() if type(code) is str and code else UNNAMED


def _failed(reason: str, text: str) -> Outcome:
    return Outcome(Ending.TOOL_FAILED, error_result("EXECUTION_FAILED", text, {"reason": reason}), reason, text)


def validated(outcome: Outcome, grant: Grant, call: Call, max_bytes: int) -> Outcome:
    """Step 7. What a failed tool says besides its code is bounded and strict, but has no schema of its own."""
    result = outcome.result
    data = result.data
    if not _is_plain(outcome) and (wrong := _wrong_field(outcome, grant, max_bytes)) is not None:
        return bad_output(wrong)
    if result.ask is not None:
        return _asking(outcome, grant, call)
    raw = result.raw if grant.tool.foreign is not None else None
    try:
        outcome.data_json = raw if raw is not None else strictjson.encode_checked(data)
        if result.details is not None:
            outcome.details_json = strictjson.encode_checked(result.details)
    except strictjson.JsonFault:
        return bad_output("the data is not strict JSON")
    if len(outcome.data_json) > max_bytes or len(outcome.details_json) > max_bytes:
        return bad_output(f"the data is larger than {max_bytes} bytes")
    if outcome.ending is not OK:
        return _with_fitting_data(outcome, grant)
    if not grant.io.output.is_valid(data):
        return bad_output("the data does not match the output schema")
    if not call.wants_text:
        return outcome
    if grant.tool.text is None and (data is None or call.is_brief):
        outcome.stdout = outcome.data_json.decode() if data is not None else ""
        return outcome
    try:
        outcome.stdout = _text_of(grant.tool, data)
        outcome.stdout.encode()
    except Exception:  # noqa: BLE001 (the border: a pack's text function is a handler too)
        return bad_output("the text form could not be made")
    return outcome


def _is_plain(outcome: Outcome) -> bool:
    """A success that says nothing beside its data and a decision, as most do: then `_wrong_field` has nothing to find."""
    result: Any = outcome.result  # fields of a struct hold whatever a handler put there
    decision = result.decision
    if decision is not None and (type(decision) is not str or decision not in DECISIONS):
        return False
    if result.code is not None or result.message is not None or result.content:
        return False
    if result.is_error is not None or result.degraded is not None or outcome.text is not None:
        return False
    return result.success is True and type(result.exit_code) is int and outcome.reason is None


def _wrong_field(outcome: Outcome, grant: Grant, max_bytes: int) -> str | None:
    """What is wrong beside the data; None: nothing."""
    result = outcome.result
    decision, code = result.decision, result.code
    if decision is not None and decision not in DECISIONS:
        return "the decision is not block, warn or pass"
    if code is not None and (type(code) is not str or code not in grant.codes):
        return "the code is not one that the tool declares"
    if (odd := _odd_field(outcome)) is not None:
        return f"{odd} is not of its type"
    return content_fault(result.content, max_bytes) if result.content else None


def _asking(outcome: Outcome, grant: Grant, call: Call) -> Outcome:
    """Step 7 of a call that asks its client something in place of an answer."""
    ask: Any = outcome.result.ask
    fault = ask_fault(ask, grant)
    if fault is not None:
        return bad_output(fault)
    missing = undeclared(ask, call)
    if not missing:
        outcome.result = Result(ask=ask)
        return outcome
    must = f"which must declare {', '.join(missing)} with the call (revision 2026-07-28)."
    text = f"{grant.tool.name} asks something of its client, {must}"
    details = {"reason": "client_cannot", "requiredCapabilities": {name: {} for name in missing}}
    result = error_result("CLIENT_CANNOT", text, details)
    encoded = strictjson.dumps(details)
    return Outcome(Ending.CLIENT_CANNOT, result, "client_cannot", text, details_json=encoded)


def content_fault(content: Any, max_bytes: int) -> str | None:
    """What is wrong with images and the like."""
    try:
        encoded = strictjson.encode_checked(content)
    except strictjson.JsonFault:
        return "the content is not strict JSON"
    if len(encoded) > max_bytes:
        return f"the content is larger than {max_bytes} bytes"
    return (
        None
        if compile_schema(CONTENT).is_valid(content)
        else "the content is no text, image, audio or embedded resource"
    )


def _odd_field(outcome: Outcome) -> str | None:
    """A field beside data, decision and code that no face could send: nothing checked it when the handler made it."""
    result: Any = outcome.result  # fields of a struct hold whatever a handler put there
    if type(result.success) is not bool:
        return "success"
    if result.is_error is not None and type(result.is_error) is not bool:
        return "is_error"
    if result.degraded is not None and type(result.degraded) is not bool:
        return "degraded"
    if type(result.exit_code) is not int:
        return "exit_code"
    for text in (result.message, outcome.text, outcome.reason):
        if text is not None and not _is_text(text):
            return "message"
    return None


def _is_text(value: Any) -> bool:
    if type(value) is not str:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _with_fitting_data(outcome: Outcome, grant: Grant) -> Outcome:
    """Of a failure. Clients check structured answers against the advertised schema, failures too."""
    result = outcome.result
    if result.data is not None and not grant.io.output.is_valid(result.data):
        if result.details is None:
            outcome.result = replace(result, data=None, raw=None, details=result.data)
            outcome.details_json = outcome.data_json
        else:
            outcome.result = replace(result, data=None, raw=None)
        outcome.data_json = b"null"
    return outcome


def _text_of(tool: Tool, data: Any) -> str:
    return tool.text(data) if tool.text is not None else strictjson.dumps_pretty(data).decode()


def bad_output(text: str) -> Outcome:
    """Step 7's verdict. `text` names the kind of fault and never quotes the output."""
    return Outcome(
        Ending.BAD_OUTPUT,
        error_result("INVALID_OUTPUT", f"Invalid tool output: {text}.", None),
        "invalid_output",
        text,
    )


def error_result(code: str, text: str, details: Any) -> Result:
    return Result(success=False, is_error=True, code=code, message=f"{code}: {text}", details=details, exit_code=1)


class _Interrupted(BaseException):
    """Raised inside a handler's thread at its deadline. Not an Exception, so that `except Exception` does not keep it."""


async def _contained(handler: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """asyncio lets SystemExit and KeyboardInterrupt of a task end the whole loop; a handler's are its own crash.

    The handler's coroutine is made here: one whose task is cancelled before its first step would be reported as never awaited.
    """
    try:
        return await handler()
    except (SystemExit, KeyboardInterrupt):
        raise RuntimeError from None


def _forget(future: asyncio.Future[Any]) -> None:
    """Discards what a handler returns after its deadline; it is retrieved so that the loop does not warn about it."""
    fault = None if future.cancelled() else future.exception()
    if fault is not None:
        _let_go(fault)


def _wake(turn: asyncio.Future[None] | None) -> None:
    if turn is not None and not turn.done():
        turn.set_result(None)


def _nothing() -> None:
    pass
