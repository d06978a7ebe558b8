"""What this pack's commands run with: a person's own repository, beside the stores of their home (`toolgate.local`)."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolgate.local import InProcessCompute, Local, OwnFiles, isolated_compute, open_local
from toolgate.packs.governance import PACK
from toolgate.packs.governance.cli.common import below
from toolgate.packs.governance.stores import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from toolgate.model.call import Environment
    from toolgate.model.powers import Compute
    from toolgate.model.tool import Context
    from toolgate.packs.governance.stores.consents import Consents
    from toolgate.packs.governance.stores.reviews import FalsePositives

Out = TypeVar("Out")


class RepositoryCommand:
    """One command's powers, and the repository that it is about."""

    def __init__(self, local: Local, root: Path, compute: Compute, *, keeps: bool = False) -> None:
        self._local = local
        self._compute = compute
        self.keeps = keeps
        """Whether what the command records stays."""
        self.root = root
        self.files = OwnFiles(root)

    @property
    def organisation(self) -> str:
        """Whose reviews and consent are meant where nobody is named."""
        return str(self._local.settings["organisation"])

    @property
    def now(self) -> int:
        return int(self._local.clock.wall() * 1000)

    def environment(self) -> Environment:
        return self._local.environment()

    def context(self) -> Context:
        """On their own machine people choose the thresholds for themselves, unless the home says otherwise."""
        whole = self._local.context(self.files, self._compute)
        said = self._local.whole.packs.tables.get(PACK.name, {}).get("least_profile", "relaxed")
        return replace(whole, settings={**whole.settings, "least_profile": said})

    def act(self, name: str, about: Mapping[str, Any]) -> AbstractContextManager[dict[str, Any]]:
        """Around what changes a store: it is in the audit log before it happens. Raises: StartRefused."""
        return self._local.act(name, about)

    def false_positives(self, work: Callable[[FalsePositives], Out]) -> Out:
        """Raises: StoreUnavailable."""
        return asyncio.run(opened.false_positives(self._local.stores, work))

    def consents(self, work: Callable[[Consents], Out]) -> Out:
        """Raises: StoreUnavailable."""
        return asyncio.run(opened.consents(self._local.stores, work))

    def named(self, files: list[Path] | None) -> list[str]:
        """Paths as typed, from where the person stands, as the repository calls them."""
        return [below(self.root, path) for path in files or ()]


@contextmanager
def person(
    home: Path | None, root: Path | None = None, *, keep: bool = False, isolated: bool = False
) -> Iterator[RepositoryCommand]:
    """`isolated`: for work that only a kill can bound (the repository's own patterns). Raises: SettingsError."""
    working: AbstractContextManager[Compute] = isolated_compute() if isolated else nullcontext(InProcessCompute())
    with open_local(PACK, home, keeps=keep) as local, working as compute:
        yield RepositoryCommand(local, root or repository_root(Path.cwd()), compute, keeps=keep)


def repository_root(start: Path) -> Path:
    """The nearest directory upwards that is a repository, else where we are."""
    return next((place for place in (start, *start.parents) if (place / ".git").exists()), start)
