"""A deployed paper for tests: the author's half's small good one, with a worker, a capability and runnable evidence."""

from __future__ import annotations

from pathlib import Path

from tests.packs.lra.papers import BODY, FILES, HEAD, html

RUNNABLE = BODY.replace(
    '<section id="demo-1" class="demo">',
    '<section id="demo-1" class="demo" data-lra-run="wasm/add.wasm#add" data-lra-input="1 1" data-lra-expect="2">',
)
PAGE = html(HEAD + '\n<meta name="lra:capability" content="adder">', RUNNABLE)
SCRIPT = b'navigator.serviceWorker?.register("sw.js");\nfetch("wasm/add.wasm");\n'
WORKER = b'const ASSETS = ["./", "index.html", "paper.css", "paper.js"];\n'
PAPER: dict[str, bytes] = {**FILES, "index.html": PAGE.encode(), "paper.js": SCRIPT, "sw.js": WORKER}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'"
CAREFUL = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'


def plant(directory: Path, **changes: bytes) -> Path:
    for name, data in {**PAPER, **changes}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return directory


def save(path: Path, content: str | bytes) -> None:
    """Whole, in one step: a watcher that looks between the steps of a write sees two changes."""
    beside = path.with_name(f".{path.name}")  # nobody watches it
    beside.write_bytes(content if isinstance(content, bytes) else content.encode())
    beside.replace(path)
