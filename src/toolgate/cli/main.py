"""The way in: `toolgate COMMAND`. Which commands there are is `toolgate.cli.commands`.

What goes wrong ends here too: one line for the fault, one for the fix, an exit code of `errors.ExitCode`, no traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.cli import output
from toolgate.errors import VERDICTS, ExitCode, LedgerUnavailable, Refusal, StoreUnavailable, ToolgateError
from toolgate.later import later, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

command: Final = later("toolgate.cli.commands:command")
_script: Final = later("toolgate.cli.commands:script")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is the answer."""
    return _run(lambda: command().main(args=arguments, prog_name="toolgate"))


def _run(act: Callable[[], Any]) -> int:
    """The border where every exception becomes a line of text."""
    try:
        act()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.FAILED if end.code else ExitCode.OK
    except ToolgateError as fault:
        output.fault(str(fault))
        return exit_code(fault)
    except OSError as fault:
        output.fault(output.system_fault(fault))
        return ExitCode.FAILED
    except Exception as fault:
        if os.environ.get("TOOLGATE_TRACEBACK"):
            raise
        output.fault(
            f"Toolgate itself failed ({type(fault).__name__}).\nSet TOOLGATE_TRACEBACK=1 to see where, and report it."
        )
        return ExitCode.FAILED
    return ExitCode.OK


def exit_code(fault: ToolgateError) -> int:
    if isinstance(fault, Refusal):
        return VERDICTS[fault.ending].exit_code
    if isinstance(fault, LedgerUnavailable | StoreUnavailable):
        return ExitCode.UNAVAILABLE
    return ExitCode.FAILED


def run() -> None:
    """The console script."""
    sys.exit(output.run_program(main))


def run_script() -> None:
    """The console script that is called like a pack's command: that command, by the same way in."""
    name = Path(sys.argv[0]).name
    sys.exit(output.run_program(lambda: _run(lambda: _run_command(name))))


def _run_command(name: str) -> None:
    if not _done_shortly(name, sys.argv[1:]):
        _script(name).main(prog_name=name)


def _done_shortly(name: str, arguments: Sequence[str]) -> bool:
    """A pack that ships with us may have a short way for a command that people wait for: `cli.short`, which tells whether it
    took it. It saves reading the command line with typer and opening the doors of all packs, 60 ms."""
    try:
        short = named(f"toolgate.packs.{name}.cli:short")
    except (ImportError, AttributeError):
        return False
    return bool(short(arguments))
