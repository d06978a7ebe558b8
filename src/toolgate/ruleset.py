"""What settings, policy and pins say together, read whole or not at all: at a start, and again at each reload."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolgate.enabled import Enabled, enabled_packs, with_made
from toolgate.gate.admit import Grant, Permits, sayable_codes
from toolgate.gate.counted import CountTable
from toolgate.gate.redact import check_kept
from toolgate.model.offers import Addresses, helpers, offered
from toolgate.model.tool import Pack, Tool
from toolgate.ownership import check_owners
from toolgate.policy.bundle import digests, load_policy
from toolgate.policy.conditions import compile_rules
from toolgate.policy.roles import with_custom_roles
from toolgate.policy.rules import check_start
from toolgate.powers.secrets import SecretSources
from toolgate.registry import SchemaRegistry

if TYPE_CHECKING:
    from toolgate.model.call import Environment
    from toolgate.policy.bundle import Policy
    from toolgate.policy.contract import Contract
    from toolgate.policy.manifest import Manifest
    from toolgate.settings import Settings
    from toolgate.upstreams import Upstreams


class Share(Struct, frozen=True):
    """What one of several processes of a server shares with the others."""

    is_owner: bool
    processes: int
    table: CountTable
    elsewhere: Callable[[Pack, Tool], Tool]
    """A tool as it is called here, where another process may have to run it."""


class Ruleset(Struct, frozen=True):
    settings: Settings
    enabled: Enabled
    contract: Contract
    registry: SchemaRegistry
    permits: Permits
    addresses: Addresses
    warnings: list[str]
    upstreams: Upstreams | None
    digests: Mapping[str, str]
    """Of policy and contract: the log says by them what was in force."""


def read_rules(settings: Settings, before: Upstreams | None = None, share: Share | None = None) -> Ruleset:
    """`before`: the upstreams that are served now, whose connections go on. Raises: StartRefused."""
    check_owners(settings, os.environ)
    owns = share is None or share.is_owner
    upstreams = open_upstreams(settings, before, owns=owns) if settings.upstreams else None
    enabled, policy, warnings = governed(settings, upstreams)
    served = [(pack, tool) for pack in enabled.packs for tool in (*offered(pack), *helpers(pack))]
    if share is not None and not share.is_owner:
        served = [(pack, share.elsewhere(pack, tool)) for pack, tool in served]
    registry = SchemaRegistry(tool for _, tool in served)
    rows, keep = policy.manifest.rows, settings.ledger.keep
    check_kept(keep, {tool.name: tool for _, tool in served})
    grants = (
        _grant(pack, tool, policy, registry, keep)
        for pack, tool in served
        if (tool.row or tool.name)
        in rows  # what a deployment's manifest leaves out is not served (orphans were refused)
    )
    environment = environment_by(settings, enabled.packs)
    permits = Permits(grants, policy.manifest.roles, policy.manifest.answerers, environment)
    addresses = Addresses([grant.tool for grant in permits.all()])
    return Ruleset(settings, enabled, policy.lock, registry, permits, addresses, warnings, upstreams, policy.digests)


def environment_by(settings: Settings, packs: Sequence[Pack]) -> Environment:
    """`cloud` where every binding store is on a shared engine, whether or not it answers now."""
    binding = [store for pack in packs for store in pack.stores if store.binding]
    shared = (
        settings.stores.urls.get(store.name, "").startswith("postgres")
        or bool(store.table and settings.value(store.table.setting))
        for store in binding
    )
    return "cloud" if binding and all(shared) else "local"


def _grant(
    pack: Pack, tool: Tool, policy: Policy, registry: SchemaRegistry, keep: Mapping[str, Sequence[str]]
) -> Grant:
    row = policy.manifest.rows[tool.row or tool.name]
    return Grant(
        with_custom_roles(tool, policy.manifest.roles),
        pack.name,
        row.tier,
        frozenset(row.roles),
        row.hint,
        registry.load_tool_io(tool.name),
        tool.canonical_id,
        sayable_codes(tool, row.tier),
        keep.get(tool.name, ()),
        None if tool.foreign is None else {"upstream": tool.foreign.upstream, "pin": tool.foreign.pin},
        row.asks & set(tool.asks),
        # Who subscribes to a resource names it as who reads it does; a completion and a listing have no such arguments.
        policy.rules.get(tool.row if tool.kind == "subscription" else tool.name),
    )


def open_upstreams(settings: Settings, before: Upstreams | None = None, *, owns: bool = True) -> Upstreams:
    """`owns`: this process connects to them. Raises: StartRefused."""
    from toolgate.upstreams import Upstreams  # noqa: PLC0415 (the client, for homes that have adopted a server)

    return Upstreams(settings, SecretSources(settings.paths.secrets, os.environ), before=before, owns=owns)


def governed(settings: Settings, upstreams: Upstreams | None = None) -> tuple[Enabled, Policy, list[str]]:
    """The enabled packs, those of upstreams, the policy over them, and what is worth a warning. Raises: StartRefused."""
    enabled = enabled_packs(settings)
    policy = load_policy(settings.paths.policy, [tool.name for pack in enabled.packs for tool in offered(pack)])
    if upstreams is not None:
        enabled = with_upstreams(settings, enabled, upstreams, policy.manifest)
    policy = replace(
        policy,
        rules=compile_rules(enabled.packs, policy.manifest),
        digests=digests(policy.manifest, policy.lock),
    )
    return enabled, policy, check_start(enabled.packs, policy.manifest, policy.adrs, policy.lock)


def with_upstreams(settings: Settings, enabled: Enabled, upstreams: Upstreams, manifest: Manifest) -> Enabled:
    """The packs, and one for each upstream that was adopted. Raises: StartRefused."""
    taken = names_taken(enabled) | manifest.withdrawn
    return with_made(enabled, [upstreams.maker(taken, manifest.rows)], settings, pinned=True)


def names_taken(enabled: Enabled) -> set[str]:
    """What no upstream may take: names and kinds of addresses of the packs' own."""
    from toolgate.packs.upstream.names import taken_by  # noqa: PLC0415 (as above)

    return taken_by(tool for pack in enabled.packs for tool in offered(pack))
