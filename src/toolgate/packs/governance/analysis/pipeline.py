"""The whole analysis, for the tool and for the command: collect, parse and judge in workers, weigh against the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, convert
from msgspec.structs import replace

from toolgate.errors import StoreUnavailable
from toolgate.model.clock import rfc3339
from toolgate.model.threads import in_thread
from toolgate.packs.governance.analysis.drift import BaselineDrift, as_stored, baseline_of, drift_between, from_stored
from toolgate.packs.governance.analysis.ignores import BaseFiles, deciding_paths
from toolgate.packs.governance.analysis.weigh import (
    Analysis,
    AnalysisRequest,
    Breaker,
    Mode,
    StoreMemory,
    identified,
    weigh,
)
from toolgate.packs.governance.analysis.zizmor import NOT_ASKED, merged, missing
from toolgate.packs.governance.repository.answers import invalid_input
from toolgate.packs.governance.repository.config import Profile, Writer, stricter
from toolgate.packs.governance.repository.identity import RepositoryOrigin, origin_among
from toolgate.packs.governance.repository.model import MAX_FILE_BYTES, File, Repository, governed, local_actions, parse
from toolgate.packs.governance.repository.protection import PROTECTION_FILES
from toolgate.packs.governance.repository.reading import Queue, SkippedFile
from toolgate.packs.governance.rules.catalogue import judge
from toolgate.packs.governance.stores.opened import false_positives, nothing_kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolgate.model.tool import Context
    from toolgate.packs.governance.rules.base import RuleVerdict
    from toolgate.packs.governance.stores.reviews import FalsePositives

MAX_ITEMS: Final = 200_000
"""Jobs, steps and permissions of one call: two thousand workflows of a hundred. They are held at once, and judged at once."""
MAX_ACTION_ROUNDS: Final = 10
"""Actions that use actions: after so many rounds no new ones are looked for."""
COUNTING_ROLES: Final = frozenset({"committer", "admin"})
"""Whose blocked reports open the breaker: a builder must not be able to soften the gate for everybody (ADR-0008)."""


class LocalInputs(Struct, frozen=True):
    """What only a command on a person's machine knows; a tool behind a server has none of it."""

    origin: RepositoryOrigin | None = None
    """By the remote, when neither the caller nor the repository's settings name it."""
    protection: File | None = None
    """In place of the repository's own."""
    foreign: Callable[[], RuleVerdict] | None = None
    """What zizmor found; asked when our own rules are done."""
    base: Callable[[list[str]], BaseFiles | None] | None = None
    """Files as they were before the judged change."""


async def analyze(ctx: Context, args: dict[str, Any], outside: LocalInputs | None = None) -> Analysis:
    rim = outside or LocalInputs()
    mode = cast("Mode", args.get("mode", "issue"))
    repository = await read_repository(ctx, args["files"], args.get("defaultPermissions"))
    repository = _with_outside(repository, rim)
    origin = _origin(args.get("context"), repository, rim)
    own: list[RuleVerdict] = await ctx.compute(judge, repository)
    foreign = rim.foreign() if rim.foreign else missing(NOT_ASKED)
    verdicts = merged(own, foreign, repository.config.default_permissions)
    if mode == "calibration":
        await _write_baseline(ctx, origin, repository, verdicts)
    only = frozenset(args["files"]) if args.get("onlyNamed", False) else None
    analysis = await in_thread(
        weigh,
        AnalysisRequest(mode, _profile(ctx, repository, strict=bool(args.get("strict", False))), origin, only),
        repository,
        verdicts,
        now=_now(ctx),
        memory=await _memory(ctx, origin),
        drift=await _drift(ctx, origin, repository, verdicts) if mode == "drift" else None,
        base=rim.base(deciding_paths(repository)) if rim.base else None,
    )
    return replace(analysis, breaker=await _breaker(ctx, analysis))


def _with_outside(repository: Repository, rim: LocalInputs) -> Repository:
    if rim.protection is None:
        return repository
    files = {path: file for path, file in repository.files.items() if path not in PROTECTION_FILES}
    files[rim.protection.path] = rim.protection
    skipped = tuple(file for file in repository.skipped if file.path not in PROTECTION_FILES)
    return replace(repository, files=files, skipped=skipped)


def _origin(context: str | None, repository: Repository, rim: LocalInputs) -> RepositoryOrigin:
    return origin_among(context, repository.config.repository, rim.origin)


def _profile(ctx: Context, repository: Repository, *, strict: bool) -> Profile:
    """The strictest of what was asked for, what the repository says, and what the operator insists on."""
    asked: Profile = "strict" if strict else "relaxed"
    least = cast("Profile", ctx.settings.get("least_profile", "default"))
    return stricter(asked, stricter(repository.config.profile, least))


async def read_repository(ctx: Context, paths: list[str], default_permissions: str | None = None) -> Repository:
    own, unseen = await in_thread(governed, ctx.files)
    reading = _Reading(ctx, Queue(ctx.files, paths, max_bytes=MAX_FILE_BYTES, also=own))
    await reading.drain()
    for _ in range(MAX_ACTION_ROUNDS):
        new, unread = await in_thread(local_actions, ctx.files, reading.files)
        unseen += [file for file in unread if file not in unseen]
        if not reading.queue.add(new):
            break
        await reading.drain()
    settings = ctx.settings
    return Repository(
        {file.path: file for file in sorted(reading.files, key=lambda file: file.path)},
        (*unseen, *reading.queue.skipped),
        dict(ctx.contract) if ctx.contract is not None else None,
        writers=tuple(convert(entry, Writer) for entry in settings.get("write_allowed", ())),
        scopes_allowed=tuple(settings.get("write_scopes_allowed", ())),
        default_permissions=cast("Any", default_permissions),
    )


class _Reading:
    """Files read so far, and the room that is left for what is in them."""

    def __init__(self, ctx: Context, queue: Queue) -> None:
        self.queue = queue
        self.files: list[File] = []
        self._ctx = ctx
        self._room = MAX_ITEMS

    async def drain(self) -> None:
        while portion := await in_thread(self.queue.portion):
            for file in await self._ctx.compute(parse, portion):
                if file.items > self._room:
                    self.queue.skipped.append(SkippedFile(file.path, "total_too_large"))
                else:
                    self.files.append(file)
                    self._room -= file.items
            read, size = len(self.files), self.queue.size
            self._ctx.progress(read, size, f"{read} of {size} files read")


async def _memory(ctx: Context, origin: RepositoryOrigin) -> StoreMemory:
    """Without the store nothing is suppressed: the report is louder than it need be, never quieter."""
    if not origin.is_named or nothing_kept(ctx.stores):
        return StoreMemory()
    name = origin.repository
    try:
        return await false_positives(
            ctx.stores, lambda kept: StoreMemory(kept.suppressions(name), kept.counts_here(name))
        )
    except StoreUnavailable:
        return StoreMemory(answered=False)


async def _drift(
    ctx: Context, origin: RepositoryOrigin, repository: Repository, verdicts: list[RuleVerdict]
) -> BaselineDrift:
    if not origin.is_named or nothing_kept(ctx.stores):
        return BaselineDrift(created=None)
    try:
        found = await false_positives(ctx.stores, lambda kept: kept.read_baseline(origin.repository))
    except StoreUnavailable:
        found = None
    if found is None:
        return BaselineDrift(created=None)
    created, stored = found
    now = baseline_of(repository, identified(repository, verdicts))
    return drift_between(from_stored(stored), now, rfc3339(created / 1000))


async def _write_baseline(
    ctx: Context, origin: RepositoryOrigin, repository: Repository, verdicts: list[RuleVerdict]
) -> None:
    """Raises: StoreUnavailable: a calibration that was not kept is a failure, not a warning. ToolError INVALID_INPUT."""
    if not origin.is_named:
        raise invalid_input(
            "/context", "missing_context", "A baseline belongs to a repository: name it in context (owner/name)."
        )
    made, now = as_stored(baseline_of(repository, identified(repository, verdicts))), _now(ctx)
    await false_positives(ctx.stores, lambda kept: kept.write_baseline(origin.repository, made, now))


async def _breaker(ctx: Context, analysis: Analysis) -> Breaker:
    """Read, then count this block; a counter that does not answer softens nothing and stops nothing."""
    limit, now = int(ctx.settings.get("blocks_per_hour", 0)), _now(ctx)
    if not limit or analysis.threshold_decision != "block":
        return Breaker(limit)
    repository, digest, counts = (
        analysis.origin.repository,
        analysis.report_digest,
        ctx.caller.acts_as in COUNTING_ROLES,
    )

    def work(kept: FalsePositives) -> int:
        before = kept.blocked_this_hour(repository, now)
        if counts and before < limit:
            kept.count_block(repository, digest, now)
        return before

    try:
        return Breaker(limit, await false_positives(ctx.stores, work))
    except StoreUnavailable:
        return Breaker(limit, state_known=False)


def _now(ctx: Context) -> int:
    return int(ctx.clock.wall() * 1000)
