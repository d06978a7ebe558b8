"""`toolgate mcp-config CLIENT --instructions`: what an assistant has to know of this server's tools, in its client's own file.

The text is that of the prompt which a pack marks as its guide, so that file and prompt cannot differ.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import typer

from toolgate.atomic_file import replace_file
from toolgate.cli import output
from toolgate.errors import StartRefused
from toolgate.model.call import Caller

if TYPE_CHECKING:
    from toolgate.model.tool import Result
    from toolgate.settings import Settings

FILES: Final = {
    "copilot": ".github/copilot-instructions.md",
    "vscode": ".github/copilot-instructions.md",
    "claude-code": "CLAUDE.md",
    "cursor": ".cursor/rules/toolgate.mdc",
}
"""Where each client reads what its assistant has to know."""
BEGIN: Final = (
    "<!-- toolgate: begin (made by `toolgate mcp-config --instructions --write`; edits between the marks are lost) -->"
)
END: Final = "<!-- toolgate: end -->"
_HEADS: Final = {"cursor": "---\ndescription: How to use the tools of Toolgate\nalwaysApply: true\n---\n\n"}
"""What a new file begins with."""
MAX_FILE_BYTES: Final = 4 * 1024 * 1024


def show(client: str, role: str, settings: Settings, *, write: bool, json: bool) -> None:
    """Raises: StartRefused."""
    if client not in FILES:
        raise typer.BadParameter(f"there is a file of instructions for {', '.join(FILES)}", param_hint="--instructions")
    text = guidance(settings, role)
    file = Path(FILES[client])
    if write:
        _put(file, text, _HEADS.get(client, ""))
    if json:
        output.answer_json({"file": str(file), "written": write, "instructions": text})
    elif write:
        output.say(f"{file}: written between the marks")
    else:
        output.write(text)
        output.note(f"Put this into {file}, or let --write do it.")


def guidance(settings: Settings, role: str) -> str:
    """What the guide of a pack says to a caller of this role. Raises: StartRefused."""
    from toolgate.ruleset import read_rules

    rules = read_rules(settings)
    guide = next((prompt for pack in rules.enabled.packs for prompt in pack.prompts if prompt.guides), None)
    if guide is None:
        raise StartRefused("No enabled pack has a guide for assistants.\nEnable one that has: packs.enabled.")
    caller = Caller("", role)
    context = SimpleNamespace(holdings=lambda: rules.permits.holdings(caller), environment=lambda: "")
    result = cast("Result", guide.run(cast("Any", context), {}))
    messages = cast("dict[str, Any]", result.data)["messages"]
    return "\n\n".join(message["content"]["text"] for message in messages) + "\n"


def _put(file: Path, text: str, head: str) -> None:
    """Between the marks, at the end where there are none; the rest stays as it is. Raises: StartRefused."""
    before = _read(file)
    block = f"{BEGIN}\n{text}{END}\n"
    if before is None:
        after = head + block
    elif BEGIN not in before and END not in before:
        after = before + ("" if before.endswith("\n") or not before else "\n") + ("\n" if before else "") + block
    else:
        start, end = before.find(BEGIN), before.find(END)
        if start < 0 or end < start or before.count(BEGIN) != 1 or before.count(END) != 1:
            raise StartRefused(
                f"{file} does not have one mark of each kind, in order.\n"
                "Remove the lines that begin with <!-- toolgate: and try again."
            )
        after = before[:start] + block.rstrip("\n") + before[end + len(END) :]
    if after != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, after.encode(), 0o666)


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise StartRefused(
                f"{file} is larger than {MAX_FILE_BYTES // 2**20} MB.\nPut the instructions into it yourself."
            )
        return data.decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise StartRefused(f"{file} is not UTF-8.\nPut the instructions into it yourself.") from None
