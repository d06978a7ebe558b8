"""`toolgate analyze` and `baseline`: a person's own commands, and CI's, on the code the tool runs."""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from msgspec.structs import asdict, replace

from toolgate.cli.output import answer_json, say, write
from toolgate.errors import ToolError
from toolgate.kit.findings import Finding
from toolgate.kit.yamldoc import YamlFault
from toolgate.packs.governance.analysis.pipeline import LocalInputs
from toolgate.packs.governance.analysis.pipeline import analyze as run
from toolgate.packs.governance.analysis.report import decided, reliability, report
from toolgate.packs.governance.analysis.zizmor import SWITCHED_OFF, missing
from toolgate.packs.governance.cli.common import (
    as_json,
    exit_of,
    gate_exit,
    require_name,
    unjudged,
    usage,
    verdict_of,
    write_answer,
    write_findings,
)
from toolgate.packs.governance.cli.fix import fix_files
from toolgate.packs.governance.cli.git import base_reader, origin_at
from toolgate.packs.governance.cli.local import person
from toolgate.packs.governance.cli.options import Default, Format, Mode, Switch, Threshold
from toolgate.packs.governance.cli.target import target_of
from toolgate.packs.governance.cli.zizmor import Zizmor
from toolgate.packs.governance.repository.config import CONFIG, read_config
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES, parse_as
from toolgate.packs.governance.rules.catalogue import BY_ID, GATE, SUPPRESSION, ZIZMOR
from toolgate.packs.governance.stores.statistics import told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolgate.packs.governance.analysis.weigh import Analysis
    from toolgate.packs.governance.cli.git import BaseReader
    from toolgate.packs.governance.cli.local import RepositoryCommand
    from toolgate.packs.governance.cli.target import CommandTarget


def analyze(
    *,
    paths: list[Path] | None,
    mode: Mode,
    strict: bool,
    context: str | None,
    protection: Path | None,
    default_permissions: Default | None,
    base: str | None,
    zizmor: Switch | None,
    require_evaluated: bool,
    fix: bool,
    pins: Path | None,
    form: Format,
    output: Path | None,
    fail_on: Threshold,
    require_binding: bool,
    root: Path | None,
    home: Path | None,
    json: bool,
) -> None:
    target = target_of(paths or (), root)
    asked: dict[str, Any] = {"mode": mode.value, "strict": strict, "context": context}
    asked |= {"defaultPermissions": default_permissions.value} if default_permissions else {}
    if fix:
        _fix(target, pins)
    with (
        person(home, target.root, keep=mode is Mode.calibration) as who,
        outside(who, protection, zizmor, base) as rim,
    ):
        analysis = analyzed(who, target, asked, rim.outside)
        environment = who.environment()
        told = report(analysis)
    verdict = verdict_of(analysis.decision, environment, "; ".join(told["analysis"]["decision"]["reasons"]))
    if json or form is Format.json:
        write_answer(as_json(told), output)
    else:
        write_findings(shown(analysis, rim.reader, form), form, output, f"{_reliabilities(analysis)}{verdict}")
    errors = list(_errors(analysis, required=require_evaluated, zizmor=_chosen(who, zizmor)))
    if require_evaluated and rim.reader.unknown:
        errors.append(f"{SUPPRESSION} was not evaluated: {rim.reader.unknown}")
    raise typer.Exit(gate_exit(errors, exit_of(analysis.decision, environment, fail_on, binding=require_binding)))


def baseline(
    *, paths: list[Path] | None, context: str | None, root: Path | None, home: Path | None, json: bool
) -> None:
    target = target_of(paths or (), root)
    with person(home, target.root, keep=True) as who:
        asked = {"mode": "calibration", "context": context}
        analysis = analyzed(who, target, asked, LocalInputs(origin=origin_at(who.root)))
    if json:
        answer_json({"repository": analysis.origin.repository, "files": len(analysis.repository.files)})
    else:
        say(f"baseline of {analysis.origin.repository}: {len(analysis.repository.files)} files")
    raise typer.Exit(gate_exit(list(_errors(analysis)), 0))


def analyzed(who: RepositoryCommand, target: CommandTarget, asked: dict[str, Any], outside: LocalInputs) -> Analysis:
    """Raises: typer.BadParameter: there is nothing to judge, or `context` names no repository."""
    require_name(asked["context"])
    try:
        analysis = asyncio.run(
            run(who.context(), {"files": list(target.files), "onlyNamed": bool(target.files)} | asked, outside)
        )
    except ToolError as fault:
        raise usage(fault) from None
    if not analysis.repository.files and not analysis.repository.skipped:
        raise typer.BadParameter(f"there is nothing to judge in {who.root}: no workflow, and no FILES")
    return analysis


class Rim:
    """What only this machine knows, and what is to be said about it afterwards."""

    def __init__(self, outside: LocalInputs, reader: BaseReader) -> None:
        self.outside = outside
        self.reader = reader


@contextmanager
def outside(who: RepositoryCommand, protection: Path | None, zizmor: Switch | None, base: str | None) -> Iterator[Rim]:
    reader = base_reader(who.root, base)
    asked = closing(Zizmor(who.root)) if _chosen(who, zizmor) != "off" else nullcontext()
    with asked as run:
        known = LocalInputs(
            origin=origin_at(who.root),
            protection=_protection(who, protection),
            foreign=run.verdict if run is not None else partial(missing, SWITCHED_OFF, is_missed=False),
            base=reader,
        )
        yield Rim(known, reader)


def _chosen(who: RepositoryCommand, zizmor: Switch | None) -> str:
    """By the flag, else by the repository's own settings (read again by the analysis, which tells what is wrong in them)."""
    if zizmor is not None:
        return zizmor.value
    try:
        return read_config((who.root / CONFIG).read_bytes()).zizmor
    except (OSError, YamlFault):
        return "auto"


def _protection(who: RepositoryCommand, path: Path | None) -> Any:
    if path is None:
        return None
    try:
        data = path.read_bytes()[: MAX_FILE_BYTES + 1]
    except OSError as fault:
        raise typer.BadParameter(f"--protection: {path} cannot be read: {fault.strerror}") from None
    return parse_as("protection", who.named([path])[0], data)


def _errors(analysis: Analysis, *, required: bool = False, zizmor: str = "auto") -> Iterator[str]:
    """What kept the gate from judging what it was asked to."""
    yield from unjudged(analysis.repository.skipped)
    for finding in analysis.findings:
        if finding.rule == GATE:
            yield f"{finding.file}:{finding.line}: {finding.message}\n  fix: {finding.fix}"
    for verdict in analysis.not_evaluated:
        if (required and verdict.is_missed) or (verdict.rule_id, zizmor) == (ZIZMOR, "on"):
            yield f"{verdict.rule_id} was not evaluated: {verdict.reason}"


def shown(analysis: Analysis, reader: BaseReader, form: Format) -> list[Finding]:
    """Findings, files and rules that were not judged. A reviewer needs the fingerprint for `fp mark`, wherever it is read."""
    unjudged_rules = [
        Finding(verdict.rule_id, "not_evaluated", "info", verdict.reason, why=BY_ID[verdict.rule_id].why)
        for verdict in analysis.not_evaluated
    ]
    if reader.unknown:
        unjudged_rules.append(Finding(SUPPRESSION, "not_evaluated", "info", reader.unknown))
    skipped = [
        Finding("SKIPPED", "not_evaluated", "info", f"not read: {file.reason}", file=file.path)
        for file in analysis.repository.skipped
    ]
    found = [
        replace(finding, message=f"{finding.message}{_credit(finding)}{_decided(analysis, finding)}")
        for finding in analysis.findings
    ]
    if form is not Format.junit:
        found = [replace(finding, message=f"{finding.message} [{finding.fingerprint}]") for finding in found]
    return [*found, *skipped, *unjudged_rules]


def _credit(finding: Finding) -> str:
    others = finding.extra.get("alsoFoundBy", ())
    return f" (also {', '.join(others)})" if others else ""


def _decided(analysis: Analysis, finding: Finding) -> str:
    grounds = analysis.grounds.get(finding.fingerprint)
    return decided(asdict(grounds)) if grounds else ""


def _reliabilities(analysis: Analysis) -> str:
    """How right the rules with findings have been here, as far as somebody looked."""
    rules = sorted(
        {finding.rule for finding in analysis.findings if finding.status == "fail"} & analysis.memory.reliability.keys()
    )
    lines = [f"{rule} here: {told(reliability(analysis, rule))}\n" for rule in rules]
    if analysis.elsewhere:
        lines.append(f"{analysis.elsewhere} findings in other files (name none to see all)\n")
    return "".join(lines)


def _fix(target: CommandTarget, pins: Path | None) -> None:
    for path, changes in fix_files(target, pins):
        write(f"fixed {path}: {', '.join(changes)}\n", stderr=True)
