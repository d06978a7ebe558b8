"""The console of a running server: what its ports lead to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from toolgate.console.index.tables import index_at
from toolgate.console.ports import PackPanel, Ports
from toolgate.console.rendering import prepare
from toolgate.console.site import Console
from toolgate.ledger.files import KEY_FILE, LOG_PATH, derived_key
from toolgate.model.call import ROLES
from toolgate.model.threads import Lazy

if TYPE_CHECKING:
    from toolgate.app import App
    from toolgate.console.ports import UpstreamState
    from toolgate.model.tool import Panel


def console_of(app: App) -> Console:
    """A reload replaces road and rules, so both are asked of the app each time."""
    settings, powers = app.settings, app.powers
    paths = settings.paths
    ports = Ports(
        home=settings.home,
        log=paths.runs / LOG_PATH,
        index=index_at(paths.state),
        seal_key=Lazy(partial(derived_key, paths.secrets / KEY_FILE, b"console")).made,
        log_key=str(app.ledger.verifier),
        clock=app.road.clock,
        keys=app.keys,
        ledger=app.ledger,
        compute=powers.compute_for("console"),
        grants=lambda: app.rules.permits.all(),  # noqa: PLW0108 (the rules of then, not of now)
        roles=lambda: (*ROLES, *sorted(app.rules.permits.bases)),
        answerers=lambda: app.rules.permits.answerers,
        environment=powers.environment,
        ready=app.ready,
        stores=partial(_stores, app),
        upstreams=partial(_upstreams, app),
        running=partial(_running, app),
        limits_fault=app.limits_fault,
        stops=app.stops.in_force,
        approvals=app.road.approvals.store,
        digests=lambda: app.rules.digests,
        counts=None if app.share is None else app.share.table,
        changes=app.changes,
        panels=[*(_panel(app, pack.name, panel) for pack in app.packs for panel in pack.panels), *app.panels],
    )
    Thread(target=prepare, name="console templates", daemon=True).start()
    return Console(ports)


def _panel(app: App, pack: str, panel: Panel) -> PackPanel:
    return PackPanel(pack, panel.name, panel.title, panel.summary, lambda: panel.make(app.powers.panel_context(pack)))


def _stores(app: App) -> list[tuple[str, str, str]]:
    shared = app.powers.shared_stores()
    return [
        (
            store.name,
            "shared engine" if store.name in shared else "SQLite in the state directory",
            "" if shared.get(store.name, True) else f"store {store.name} does not answer",
        )
        for pack in app.packs
        for store in pack.stores
    ]


def _upstreams(app: App) -> Sequence[UpstreamState]:
    return app.upstreams.status() if app.upstreams is not None else ()


def _running(app: App) -> Counter[str]:
    return Counter(ticket.caller.key_id for ticket in list(app.road.under_way))
