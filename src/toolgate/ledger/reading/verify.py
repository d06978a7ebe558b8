"""Is the log what was written? Streams every line, names the first bad one, and tells a torn tail from tampering.

Of each run: (1) segments are there without a gap, (2) every line carries the next number and the hash of the line before,
(3) the first line is a checkpoint, and every checkpoint's signature, size, root and fields are right, (4) checkpoints that
were kept elsewhere (anchors) are among them, (5) what follows the last line is at most one torn line. Between runs: (6) a
run that another run saw is still there, as far as it was seen, and (7) a run without a last word goes on (a process holds
its lock), or a later run found it dead, as it is now. A lock file alone proves nothing: anyone can make one. (8) A run of
another key is good if handovers, which both keys signed, lead to it; they are there, each key was handed over once, and every
run of a key that was handed over is listed by the handover.

What it shows: nobody without the log's key changed what a checkpoint covers, or ended a run before its end. Not covered is
what a killed run wrote behind its last checkpoint, until the next start found it. Only an anchor shows that the newest run
is gone, or that someone who has the key rewrote the log; the newest checkpoints beside the key are such anchors against
everyone who cannot write there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct, field

from toolgate.kit import note
from toolgate.kit.merkle import Tree
from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, is_held, runs_in
from toolgate.ledger.handover import Handover, keys_of, opened
from toolgate.ledger.lines import SegmentDamaged, lines_in

Progress = Callable[[int], None]
"""Told how many bytes were read since the last time."""

_CHAIN: Final = re.compile(rb',"seq":([0-9]{1,18}),"prev":(?:"([0-9a-f]{64})"|null)\}$')
_OWN_RECORD: Final = b'Z","agentId":'
"""A checkpoint or recovered record begins `{"ts":"...Z","agentId"`; a call's has its step there."""
_OWN_RECORD_AT: Final = 30
_OLD_FIELDS: Final = frozenset(
    {"ts", "agentId", "taskId", "event", "size", "root", "note", "previous", "retired", "final", "suppressed"}
    | {"run", "seq", "prev"}
)
"""What a checkpoint of the older form may hold. Its note signs size, root and run; of its last line nothing else is signed."""

State = Literal["closed", "running", "recovered", "unknown"]
"""How a run ended: by its own last word, not yet, found dead by a later run, or nobody knows."""


class Seen(Struct, frozen=True, forbid_unknown_fields=True):
    """What one run says of another's last checkpoint."""

    run: str
    size: int
    root: str


class Found(Struct, frozen=True):
    """What one run says of another that it found dead."""

    run: str
    records: int
    last: str | None = None
    """Leaf of its last record; the older form has none."""

    def is_like(self, now: RunReport) -> bool:
        return self.records == now.records and self.last in (None, now.last)


class LogFault(Struct, frozen=True):
    """The first thing that is wrong in a run."""

    run: str
    text: str
    seq: int | None = None
    """The record; None when the fault is not in one."""
    file: str | None = None
    line: int | None = None
    """Line of that file, from 1."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        return f"{place}run {self.run}: {self.text}"


class RunReport(Struct):
    name: RunName
    records: int = 0
    covered: int = 0
    """Records below the last good checkpoint."""
    checkpoints: dict[int, str] = field(default_factory=dict)
    """Size -> root (hex) of every good checkpoint."""
    torn_bytes: int = 0
    final: bool = False
    whole: bool = True
    """False: a checkpoint of the older form, which does not sign all of itself."""
    last: str | None = None
    """Leaf of the last record."""
    fault: LogFault | None = None
    state: State = "unknown"
    seen: list[Seen] = field(default_factory=list)
    retired: set[str] = field(default_factory=set)
    recovered: list[tuple[int, Found]] = field(default_factory=list)
    """Runs that this one found dead, and where it says so."""
    signed_by: note.Verifier | None = None
    named: list[Handover] = field(default_factory=list)
    """Handovers of the log's key that its first record carries."""
    handed_over: list[tuple[Handover, list[Seen]]] = field(default_factory=list)
    """Those that stand in this run, with the last checkpoint of every run of the old key."""

    def found_dead(self) -> list[Found]:
        """As far as it is signed. A run of the older form may have died before it signed this."""
        return [found for seq, found in self.recovered if seq < self.covered or not self.whole]


class LogVerification(Struct, frozen=True):
    runs: Sequence[RunReport]
    faults: Sequence[LogFault]

    @property
    def good(self) -> bool:
        return not self.faults


def verify(
    directory: Path,
    trusted: Sequence[note.Verifier],
    *,
    only: RunName | None = None,
    anchors: Iterable[note.Checkpoint] = (),
    handovers: Iterable[str] = (),
    progress: Progress = lambda _: None,
) -> LogVerification:
    """Check every run of a directory, or `only` one. Raises: OSError.

    `trusted`: one of the log's keys is enough, if its handovers lead from there to the others. `handovers`: notes that are
    known from elsewhere.
    """
    runs, trusted = runs_in(directory), keys_of(directory, trusted, handovers)
    # Before a line is read: a run that ends meanwhile has a last word that is not read any more.
    going_on = {name for name in runs if is_held(directory / f"{name}.lock")}
    by_run: dict[str, list[note.Checkpoint]] = {}
    for anchor in anchors:
        by_run.setdefault(run_of(anchor), []).append(anchor)
    chosen = {name: segments for name, segments in runs.items() if only in (None, name)}
    reports = [
        _verify_run(name, segments, trusted, by_run.pop(name.id, []), progress) for name, segments in chosen.items()
    ]
    faults = [report.fault for report in reports if report.fault]
    faults += _ends(reports, going_on, alone=only is not None)
    if only is None:
        faults += _between_runs(reports)
        faults += _handed_over(reports)
        gone = {run for report in reports for run in report.retired}
        faults += [LogFault(run, "an anchor knows this run, and it is missing") for run in by_run if run not in gone]
    return LogVerification(reports, faults)


def run_of(checkpoint: note.Checkpoint) -> str:
    """The run that a checkpoint speaks of; empty when it names none."""
    return _extension(checkpoint, "run") or ""


def _extension(checkpoint: note.Checkpoint, name: str) -> str | None:
    mark = f"{name} "
    return next((line.removeprefix(mark) for line in checkpoint.extensions if line.startswith(mark)), None)


def read_anchors(text: str, trusted: Sequence[note.Verifier]) -> list[note.Checkpoint]:
    """The checkpoints of an anchor file: signed notes, one after the other. Raises: NoteError: one is not good."""
    found: list[note.Checkpoint] = []
    body: list[str] = []
    signed = False
    for line in text.splitlines(keepends=True):
        if signed and not line.startswith("— "):
            found.append(note.open_checkpoint("".join(body), trusted))
            body, signed = [], False
        if line != "\n" or body:
            body.append(line)
        signed = line.startswith("— ")
    if body:
        found.append(note.open_checkpoint("".join(body), trusted))
    return found


class _FaultFoundError(Exception):
    def __init__(self, seq: int | None, text: str) -> None:
        super().__init__(text)
        self.seq = seq
        self.text = text


def _verify_run(
    name: RunName,
    segments: Sequence[Segment],
    trusted: Sequence[note.Verifier],
    anchors: Sequence[note.Checkpoint],
    progress: Progress,
) -> RunReport:
    report = RunReport(name)
    starts: list[tuple[int, str]] = []
    checker = _Checker(report, trusted)
    try:
        for expected, segment in enumerate(segments, start=1):
            if segment.number != expected:  # 1
                raise _FaultFoundError(None, f"segment {name.segment(expected)} is missing")
            if report.torn_bytes:
                raise _FaultFoundError(report.records, "a line is torn in the middle of the log")
            starts.append((report.records, segment.path.name))
            for lines, rest in lines_in(segment.path):
                checker.check(lines)
                report.torn_bytes = len(rest)
                progress(sum(map(len, lines)) + len(lines))
        checker.end(anchors)
    except (_FaultFoundError, SegmentDamaged) as found:
        fault = found if isinstance(found, _FaultFoundError) else _FaultFoundError(report.records, found.why)
        report.records = max(report.records, fault.seq or 0)
        file, line = _place(starts, fault.seq)
        report.fault = LogFault(name.id, fault.text, fault.seq, file, line)
    return report


class _Checker:
    """Goes through the lines of one run in order."""

    def __init__(self, report: RunReport, trusted: Sequence[note.Verifier]) -> None:
        self._report = report
        self._trusted = trusted
        self._tree = Tree()
        self._prev: str | None = None
        self._doubt: tuple[int, str] | None = None

    def check(self, lines: Sequence[bytes]) -> None:
        """The loop that everything waits for: one hash for the leaf, one on average for the tree. Raises: the fault."""
        tree, prev = self._tree, self._prev
        seq = tree.size
        suffix = record.chain_suffix(seq, prev)
        leaves: list[bytes] = []
        for line in lines:
            if not line.endswith(suffix):  # 2
                self._settle(line, seq, prev)
            elif self._doubt is not None:
                raise _FaultFoundError(*self._doubt)
            if line.startswith(_OWN_RECORD, _OWN_RECORD_AT):
                tree.extend(leaves)
                leaves.clear()
                self._check_own(line, seq)
            if not seq and not self._report.checkpoints:  # 3
                raise _FaultFoundError(0, "the run does not begin with a signed checkpoint")
            leaf = sha256(b"\x00" + line).digest()
            leaves.append(leaf)
            prev = leaf.hex()
            seq += 1
            suffix = f',"seq":{seq},"prev":"{prev}"}}'.encode()
        tree.extend(leaves)
        self._prev = self._report.last = prev
        self._report.records = seq

    def end(self, anchors: Sequence[note.Checkpoint]) -> None:
        """Nothing more comes. Raises: the fault."""
        if self._doubt is not None:
            raise _FaultFoundError(*self._doubt)
        left = self._report.records
        for size, root in sorted((anchor.size, anchor.root.hex()) for anchor in anchors):  # 4
            if size >= left:  # it was record number `size` itself
                most = 1 + max(anchor.size for anchor in anchors)
                raise _FaultFoundError(left, f"cut: an anchor saw {most} records, {left} are left")
            if self._report.checkpoints.get(size) != root:
                raise _FaultFoundError(size, f"an anchor of {size} records does not agree: the log was rewritten")
        behind = self._report.records > self._report.covered + 1 or self._report.torn_bytes
        if self._report.final and behind:  # 5
            raise _FaultFoundError(self._report.covered + 1, "something was written behind the end of the run")

    def _settle(self, line: bytes, seq: int, prev: str | None) -> None:
        """A line does not fit the one before: which of the two was changed?"""
        if self._doubt is not None:
            # The doubtful line does not fit its successor either: it was changed itself.
            raise _FaultFoundError(seq - 1, "this record was changed")
        found = _CHAIN.search(line)
        if found is None:
            raise _FaultFoundError(seq, "this line is not a record")
        if int(found[1]) != seq:
            raise _FaultFoundError(seq, f"record {int(found[1])} stands where record {seq} should")
        if prev is None or found[2] is None:
            raise _FaultFoundError(seq, "this record was changed")
        # Right number, wrong hash: if the next line fits this one, it is the line before that was changed.
        self._doubt = (seq - 1, "this record was changed")

    def _check_own(self, line: bytes, seq: int) -> None:
        found = record.read(line)
        if found is None:
            raise _FaultFoundError(seq, "this line is not a record")
        if found.get("event") == "recovered":
            self._report.recovered.append((seq, _shaped(found.get("recovered"), Found, "recovered", seq)))
        if found.get("event") == "checkpoint" and self._doubt is None:
            self._check_checkpoint(line, found, seq)
        if found.get("event") == "handover" and self._doubt is None:
            self._check_handover(line, found, seq)

    def _check_handover(self, line: bytes, found: Mapping[str, Any], seq: int) -> None:  # 8
        report = self._report
        try:
            handover = Handover.open(str(found.get("note")))
        except note.NoteError as fault:
            raise _FaultFoundError(seq, f"the handover of the key is not good: {fault}") from None
        if handover.former != report.signed_by or handover.run != report.name.id:
            raise _FaultFoundError(seq, "the handover is of another run or key")
        if handover.statement != sha256(record.statement_in(line)).hexdigest():
            raise _FaultFoundError(seq, "the handover's fields are not what it signs")
        seen = _shaped(found.get("seen"), list[Seen], "seen", seq)
        report.handed_over.append((handover, seen))
        report.seen += seen

    def _check_checkpoint(self, line: bytes, found: Mapping[str, Any], seq: int) -> None:  # 3
        report = self._report
        try:
            text, self._trusted = note.open_note(str(found.get("note")), self._trusted)  # a run has one key
            checkpoint = note.Checkpoint.parse(text)
        except note.NoteError as fault:
            raise _FaultFoundError(seq, f"the checkpoint is not good: {fault}") from None
        if checkpoint.size != seq or run_of(checkpoint) != report.name.id:
            raise _FaultFoundError(seq, "the checkpoint is of another place")
        if checkpoint.root != self._tree.root():
            raise _FaultFoundError(report.covered, f"one of records {report.covered} to {seq - 1} was changed")
        if found.get("root") != checkpoint.root.hex() or found.get("size") != checkpoint.size:
            raise _FaultFoundError(seq, "the checkpoint's fields are not what it signs")
        self._check_fields(line, found, checkpoint, seq)
        report.covered = seq
        report.checkpoints[seq] = checkpoint.root.hex()
        report.final = found.get("final") is True
        if seq == 0:
            if found.get("began", report.name.stamp) != report.name.stamp:
                raise _FaultFoundError(seq, f"the run began at {found['began']}, and its files are named otherwise")
            previous, seen = found.get("previous"), found.get("seen", [])
            report.seen = [] if previous is None else [_shaped(previous, Seen, "previous", seq)]
            report.seen += _shaped(seen, list[Seen], "seen", seq)
            report.signed_by, report.named = self._trusted[0], opened(found.get("handovers", ()))
            report.retired = {seen.run for seen in _shaped(found.get("retired", []), list[Seen], "retired", seq)}

    def _check_fields(self, line: bytes, found: Mapping[str, Any], checkpoint: note.Checkpoint, seq: int) -> None:
        """Nothing in a checkpoint's line but what it signs and what the chain demands: nothing behind it may cover it."""
        signed = _extension(checkpoint, "statement")
        if signed is not None:
            stated = record.statement_in(line)
            body = record.signed_body(stated, found["note"])
            good = sha256(stated).hexdigest() == signed
        else:
            self._report.whole = False
            chain = ("run", "seq", "prev")
            body = record.encode({name: value for name, value in found.items() if name not in chain})
            good = found.keys() <= _OLD_FIELDS and record.is_headed(found)
        head = record.with_run(body, self._report.name.id)
        if not good or not line.startswith(head) or not _CHAIN.fullmatch(line, len(head)):
            raise _FaultFoundError(seq, "the checkpoint's fields are not what it signs")
        if found["note"].count("\n\N{EM DASH} ") != 1:
            raise _FaultFoundError(seq, "the checkpoint is signed by someone else, too")


def _shaped(value: Any, kind: Any, name: str, seq: int) -> Any:
    """Raises: the fault: what a record says of other runs does not have its form."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise _FaultFoundError(seq, f"`{name}` is malformed") from None


def _ends(reports: Sequence[RunReport], going_on: Set[RunName], *, alone: bool) -> list[LogFault]:  # 7
    """How each run ended, noted in its report; a fault for each of which nobody knows."""
    found: dict[str, list[tuple[Found, str]]] = {}
    for report in reports:
        for claim in report.found_dead():
            found.setdefault(claim.run, []).append((claim, report.name.id))
    faults = []
    for report in reports:
        dead = found.get(report.name.id, [])
        # A later start finds what is left then: all that found it must agree.
        otherwise = [(claim, by) for claim, by in dead if not claim.is_like(report)]
        if report.final:
            report.state = "closed"
        elif dead and not otherwise:
            report.state = "recovered"
        elif report.name in going_on and not dead:
            report.state = "running"
        elif otherwise and not report.fault:
            claim, by = otherwise[0]
            faults.append(
                LogFault(report.name.id, f"cut or changed: run {by} found it dead with {claim.records} records")
            )
        elif not report.fault:
            faults.append(LogFault(report.name.id, _NO_END + (_ASK_ALL if alone else "")))
    return faults


_NO_END: Final = (
    "killed or cut: it ends without a last checkpoint, no process holds its lock, and no later run found it dead; "
    "the next start of the server will"
)
_ASK_ALL: Final = ". If it did, that is known when the whole log is verified"


def _between_runs(reports: Sequence[RunReport]) -> list[LogFault]:  # 6
    retired = {run for report in reports for run in report.retired}
    by_id: dict[str, RunReport] = {}
    faults = []
    for report in reports:
        if report.name.id in by_id:
            faults.append(
                LogFault(report.name.id, f"this run is there twice: {by_id[report.name.id].name} and {report.name}")
            )
        by_id[report.name.id] = report
    missed: set[str] = set()
    for report in reports:
        for found in report.found_dead():
            if found.records and found.run not in by_id and found.run not in retired and found.run not in missed:
                faults.append(LogFault(found.run, f"run {report.name.id} found this run dead, and it is missing"))
                missed.add(found.run)
        for seen in report.seen:
            other = by_id.get(seen.run)
            if seen.run in retired or seen.run in missed or (other and other.fault):
                continue
            if other is None:
                faults.append(LogFault(seen.run, f"run {report.name.id} saw this run, and it is missing"))
            elif other.checkpoints.get(seen.size) != seen.root:
                faults.append(
                    LogFault(seen.run, f"cut: run {report.name.id} saw its checkpoint of {seen.size} records")
                )
            else:
                continue
            missed.add(seen.run)
    return faults


def _handed_over(reports: Sequence[RunReport]) -> list[LogFault]:  # 8
    """What does not fit the changes of the key."""
    faults: list[LogFault] = []
    listing: dict[note.Verifier, tuple[str, set[str]]] = {}
    """By key: in which run it was handed over, and which runs may be of it."""
    for report in reports:
        for handover, listed in report.handed_over:
            runs = {report.name.id, *(seen.run for seen in listed)}
            first, _ = listing.setdefault(handover.former, (report.name.id, runs))
            if first != report.name.id:
                faults.append(LogFault(report.name.id, f"the key was handed over twice: run {first} did it, too"))
    for report in reports:
        run, runs = listing.get(report.signed_by, ("", set())) if report.signed_by else ("", set())
        if run and report.name.id not in runs:
            text = f"it is of a key that was handed over in run {run}, which does not know it"
            faults.append(LogFault(report.name.id, text))
    return faults + _missing_handovers(reports)


def _missing_handovers(reports: Sequence[RunReport]) -> list[LogFault]:
    """Those that some run names and no run has."""
    there = {handover for report in reports for handover, _ in report.handed_over}
    excused = {run for report in reports for run in report.retired}
    excused |= {report.name.id for report in reports if report.fault}
    named = {handover: report.name.id for report in reversed(reports) for handover in report.named}
    return [
        LogFault(handover.run, f"run {by} names a handover of the key in this run, and it is missing")
        for handover, by in named.items()
        if handover not in there and handover.run not in excused
    ]


def _place(starts: Sequence[tuple[int, str]], seq: int | None) -> tuple[str | None, int | None]:
    if seq is None or not starts:
        return None, None
    start, file = next((earlier for earlier in reversed(starts) if earlier[0] <= seq), starts[0])
    return file, seq - start + 1
