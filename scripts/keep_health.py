"""The history of the contract check, on a branch of its own. Nobody works on it and nothing is merged from it, so whoever keeps
it needs no right to a branch that people use.

    python scripts/keep_health.py restore FOLDER    the checks that the branch holds, into FOLDER
    python scripts/keep_health.py keep FOLDER       checks and badge of FOLDER, as the branch's next commit

Where GH_TOKEN is set, the remote is asked with it.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

BRANCH: Final = "contract-health"
CHECKS: Final = "checks.jsonl"
BADGE: Final = "contract-health.svg"
MOST_LINES: Final = 5000
"""Checks that are kept: years of them, one a day."""
_AUTHOR: Final = ("contract health", "contract-health@users.noreply.github.com")


def git(*words: str, data: bytes | None = None) -> bytes:
    """Raises: subprocess.CalledProcessError."""
    environment = os.environ | _identity() | _credentials(os.environ.get("GH_TOKEN"))
    done = subprocess.run(["git", *words], input=data, env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout.strip()


def _identity() -> dict[str, str]:
    name, address = _AUTHOR
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": address,
    }


def _credentials(token: str | None) -> dict[str, str]:
    """By the environment: what stands in arguments or in a file, others may read."""
    if not token:
        return {}
    header = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraheader",
        "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {header}",
    }


def newest() -> str:
    """The branch's last commit, fetched; empty: there is no such branch yet."""
    if not git("ls-remote", "--heads", "origin", BRANCH):
        return ""
    git("fetch", "--quiet", "--depth=1", "origin", BRANCH)
    return git("rev-parse", "FETCH_HEAD").decode()


def restore(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    commit = newest()
    kept = git("cat-file", "blob", f"{commit}:{CHECKS}") + b"\n" if commit else b""
    (folder / CHECKS).write_bytes(kept)


def keep(folder: Path) -> None:
    """Side effects: pushes one commit. Fails when somebody else has pushed since: nothing is ever overwritten."""
    lines = (folder / CHECKS).read_bytes().splitlines()[-MOST_LINES:]
    files = {CHECKS: b"\n".join(lines) + b"\n", BADGE: (folder / BADGE).read_bytes()}
    blobs = {name: git("hash-object", "-w", "--stdin", data=content).decode() for name, content in files.items()}
    entries = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in sorted(blobs.items()))
    tree = git("mktree", data=entries.encode()).decode()
    before = newest()
    parents = ["-p", before] if before else []
    commit = git("commit-tree", tree, *parents, "-m", f"Keep {len(lines)} checks of the contract").decode()
    git("push", "--quiet", "origin", f"{commit}:refs/heads/{BRANCH}")


if __name__ == "__main__":
    {"restore": restore, "keep": keep}[sys.argv[1]](Path(sys.argv[2]))
