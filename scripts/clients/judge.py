"""What a reader must find in what a client shows: one rule for every library and program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

READABLE: Mapping[str, str] = {
    "good": "hello",
    "bad_arguments": "text is missing; expected a string of 1 to 200 characters",
    "said_no": "The shop is closed. Come back tomorrow.",
    "not_there": "There is no such shop.",
    "crashed": "The tool failed.",
    "bad_output": "the data does not match the output schema",
    "role_of_argument": "builder may not call analyze_dissonance with mode=calibration",
    "null": "hello",
    "afterwards": "still here",
}
"""What a reader must find of each step. Who is not offered a tool cannot call it: the other steps are not judged here."""
CHECKS_ITSELF = "ok; checks arguments itself"
"""By its words; `run.confirmed` asks the audit log."""
TOO_MANY = "calls of this key are running"
MAX_SHOWN = 160
"""Characters of a fault that a cell of the table holds."""
OF_ARGUMENTS = ("bad_arguments", "null")
_CHECKED = re.compile(
    r"(?is)\btext\b.*(missing|required)|(missing|required).*\btext\b|input did not match expected schema"
)
"""A client that checks arguments by the advertised schema before it sends them, and says so in its own words."""


def judged(told: Mapping[str, Any], tools: int | None = None) -> str:
    """`ok`, or what a reader does not see. `tools`: how many the server lists; a client that drops one does not say so."""
    if "session" in told:
        return f"lost: {short(told['session']['text'])}"
    shown = {step: str(each.get("text", "")) for step, each in told.items()}
    faults = [step for step, text in READABLE.items() if text not in shown.get(step, "")]
    never_sent = [step for step in faults if step in OF_ARGUMENTS and _CHECKED.search(shown.get(step, ""))]
    faults = [step for step in faults if step not in never_sent]
    faults += _limits(told, shown)
    if tools is not None and shown.get("list") != f"{tools} tools":
        faults.append(f"list ({shown.get('list', 'not tried')} of {tools})")
    if faults:
        return "unreadable: " + ", ".join(faults)
    return CHECKS_ITSELF if never_sent else "ok"


def _limits(told: Mapping[str, Any], shown: Mapping[str, str]) -> list[str]:
    """Agent libraries make more calls at once than are admitted; the SDKs fill every slot and ask once more."""
    if "burst" in told:
        return [] if told["burst"]["ok"] else [f"burst ({short(shown['burst'])})"]
    faults = (
        [] if TOO_MANY in shown.get("too_many", "") else [f"too_many ({short(shown.get('too_many', 'not tried'))})"]
    )
    return faults + [step for step in ("others_go_on", "cancel", "progress") if not told.get(step, {}).get("ok")]


def short(text: str) -> str:
    return re.sub(r"[|\s]+", " ", text)[:MAX_SHOWN].strip()
