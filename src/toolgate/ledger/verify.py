"""Is the log what was written? Streams every line, names the first bad one, and tells a torn tail from tampering.

Of each run: (1) segments are there without a gap, (2) every line carries the next number and the hash of the line before,
(3) every checkpoint's signature, size and root are right, (4) anchors kept elsewhere agree, (5) what follows the last
line is at most one torn line. Between runs: (6) a run that another run saw is still there, as far as it was seen, and
(7) a run without a last word is alive or was recovered.

What it shows: nobody without the log's key changed what a checkpoint covers. Only an anchor shows a log that was rolled
back by someone who has the key, or cut back to an earlier checkpoint of a run that goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from toolgate.kit import note
from toolgate.kit.merkle import Tree
from toolgate.ledger import record
from toolgate.ledger.files import RunName, Segment, runs_in
from toolgate.ledger.recovery import lines_of, open_segment

Progress = Callable[[int], None]
"""Told how many bytes were read since the last time."""

_CHAIN: Final = re.compile(rb',"seq":([0-9]{1,18}),"prev":(?:"([0-9a-f]{64})"|null)\}$')
_OWN_RECORD: Final = b'Z","agentId":'
"""A checkpoint or recovered record begins `{"ts":"...Z","agentId"`; a call's has its step there."""
_OWN_RECORD_AT: Final = 30


class Fault(Struct, frozen=True):
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
    fault: Fault | None = None
    previous: Mapping[str, Any] | None = None
    retired: set[str] = field(default_factory=set)
    recovered: dict[str, int] = field(default_factory=dict)
    """Runs that this one found dead -> records they had."""


class Report(Struct, frozen=True):
    runs: Sequence[RunReport]
    faults: Sequence[Fault]

    @property
    def good(self) -> bool:
        return not self.faults


def verify(
    directory: Path,
    trusted: Sequence[note.Verifier],
    *,
    only: RunName | None = None,
    anchors: Iterable[note.Checkpoint] = (),
    progress: Progress = lambda _: None,
) -> Report:
    """Check every run of a directory, or `only` one. Raises: OSError."""
    runs = runs_in(directory)
    by_run: dict[str, dict[int, bytes]] = {}
    for anchor in anchors:
        by_run.setdefault(run_of(anchor), {})[anchor.size] = anchor.root
    chosen = {name: segments for name, segments in runs.items() if only in (None, name)}
    reports = [
        _verify_run(name, segments, trusted, by_run.pop(name.id, {}), progress) for name, segments in chosen.items()
    ]
    faults = [one.fault for one in reports if one.fault]
    if only is None:
        faults += _between_runs(directory, {one.name.id: one for one in reports})
        gone = {run for one in reports for run in one.retired}
        faults += [Fault(run, "an anchor knows this run, and it is missing") for run in by_run if run not in gone]
    return Report(reports, faults)


def run_of(checkpoint: note.Checkpoint) -> str:
    """The run that a checkpoint speaks of; empty when it names none."""
    return next((line.removeprefix("run ") for line in checkpoint.extensions if line.startswith("run ")), "")


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
    anchors: Mapping[int, bytes],
    progress: Progress,
) -> RunReport:
    report = RunReport(name)
    starts: list[tuple[int, str]] = []
    checker = _Checker(report, trusted, anchors)
    try:
        for expected, segment in enumerate(segments, start=1):
            if segment.number != expected:  # 1
                raise _FaultFoundError(None, f"segment {name.segment(expected)} is missing")
            if report.torn_bytes:
                raise _FaultFoundError(report.records, "a line is torn in the middle of the log")
            starts.append((report.records, segment.path.name))
            with open_segment(segment.path) as stream:
                for lines, rest in lines_of(stream):
                    checker.check(lines)
                    report.torn_bytes = len(rest)
                    progress(sum(map(len, lines)) + len(lines))
        checker.end()
    except _FaultFoundError as fault:
        report.records = max(report.records, fault.seq or 0)
        file, line = _place(starts, fault.seq)
        report.fault = Fault(name.id, fault.text, fault.seq, file, line)
    return report


class _Checker:
    """Goes through the lines of one run in order."""

    def __init__(self, report: RunReport, trusted: Sequence[note.Verifier], anchors: Mapping[int, bytes]) -> None:
        self._report = report
        self._trusted = trusted
        self._anchors = sorted(anchors.items(), reverse=True)
        self._tree = Tree()
        self._prev: str | None = None
        self._doubt: tuple[int, str] | None = None

    def check(self, lines: Sequence[bytes]) -> None:
        """The loop that everything waits for: one hash for the leaf, one on average for the tree. Raises: the fault."""
        tree, prev = self._tree, self._prev
        seq = tree.size
        suffix = record.chain_suffix(seq, prev)
        next_anchor = self._anchors[-1][0] if self._anchors else -1
        leaves: list[bytes] = []
        for line in lines:
            if seq == next_anchor:
                tree.extend(leaves)
                leaves.clear()
                next_anchor = self._check_anchor()
            if not line.endswith(suffix):  # 2
                self._settle(line, seq, prev)
            elif self._doubt is not None:
                raise _FaultFoundError(*self._doubt)
            if line.startswith(_OWN_RECORD, _OWN_RECORD_AT):
                tree.extend(leaves)
                leaves.clear()
                self._check_own(line, seq)
            leaf = sha256(b"\x00" + line).digest()
            leaves.append(leaf)
            prev = leaf.hex()
            seq += 1
            suffix = f',"seq":{seq},"prev":"{prev}"}}'.encode()
        tree.extend(leaves)
        self._prev = prev
        self._report.records = seq

    def end(self) -> None:
        """Nothing more comes. Raises: the fault."""
        if self._doubt is not None:
            raise _FaultFoundError(*self._doubt)
        if self._anchors and self._anchors[-1][0] == self._tree.size:
            self._check_anchor()
        if self._anchors:  # 4
            size = self._anchors[0][0]
            raise _FaultFoundError(
                self._report.records, f"cut: an anchor saw {size} records, {self._report.records} are left"
            )
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
        if found.get("event") == "recovered" and isinstance(found.get("recovered"), dict):
            self._report.recovered[str(found["recovered"].get("run"))] = found["recovered"].get("records", 0)
        if found.get("event") == "checkpoint" and self._doubt is None:
            self._check_checkpoint(found, seq)

    def _check_checkpoint(self, found: Mapping[str, Any], seq: int) -> None:  # 3
        report = self._report
        try:
            checkpoint = note.open_checkpoint(str(found.get("note")), self._trusted)
        except note.NoteError as fault:
            raise _FaultFoundError(seq, f"the checkpoint is not good: {fault}") from None
        if checkpoint.size != seq or run_of(checkpoint) != report.name.id:
            raise _FaultFoundError(seq, "the checkpoint is of another place")
        if checkpoint.root != self._tree.root():
            raise _FaultFoundError(report.covered, f"one of records {report.covered} to {seq - 1} was changed")
        if found.get("root") != checkpoint.root.hex() or found.get("size") != checkpoint.size:
            raise _FaultFoundError(seq, "the checkpoint's fields are not what it signs")
        report.covered = seq
        report.checkpoints[seq] = checkpoint.root.hex()
        report.final = found.get("final") is True
        if seq == 0:
            report.previous = found.get("previous")
            report.retired = {str(one.get("run")) for one in found.get("retired", ())}

    def _check_anchor(self) -> int:
        """Raises: the fault. Returns the size of the next anchor, -1 when there is none."""
        size, root = self._anchors.pop()
        if root != self._tree.root():
            raise _FaultFoundError(
                self._report.covered, f"an anchor of {size} records does not agree: the log was rewritten"
            )
        return self._anchors[-1][0] if self._anchors else -1


def _between_runs(directory: Path, reports: Mapping[str, RunReport]) -> list[Fault]:
    retired = {run for one in reports.values() for run in one.retired}
    recovered = {run: count for one in reports.values() for run, count in one.recovered.items()}
    faults = []
    for one in reports.values():
        seen = one.previous  # 6
        if seen and seen["run"] not in retired:
            other = reports.get(seen["run"])
            if other is None:
                faults.append(Fault(seen["run"], f"run {one.name.id} saw this run, and it is missing"))
            elif not other.fault and other.checkpoints.get(seen["size"]) != seen["root"]:
                faults.append(
                    Fault(seen["run"], f"cut: run {one.name.id} saw its checkpoint of {seen['size']} records")
                )
        if one.final or one.fault or (directory / f"{one.name}.lock").exists():  # 7
            continue
        if recovered.get(one.name.id) != one.records:
            faults.append(
                Fault(one.name.id, "cut: the run ends without a last checkpoint, and no later run found it dead")
            )
    return faults


def _place(starts: Sequence[tuple[int, str]], seq: int | None) -> tuple[str | None, int | None]:
    if seq is None or not starts:
        return None, None
    start, file = next((one for one in reversed(starts) if one[0] <= seq), starts[0])
    return file, seq - start + 1
