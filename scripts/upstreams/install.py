"""Install MCP servers that nobody here wrote, for `make guard` and `make upstreams`, by locks that hold a digest of each package.

    python -m scripts.upstreams.install [--into DIR]

npm packages (package-lock.json beside this file) run no script while they are installed; Python's (requirements.txt) get an
environment of their own. What the locks name is installed once. To lock anew:

    npm install --package-lock-only --omit-lockfile-registry-resolved
    uv pip compile requirements.in --universal -p 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \\
        -o requirements.txt
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = HERE.parents[1] / ".cache" / "upstreams"
LOCKS = ("package.json", "package-lock.json", "requirements.txt")
INSTALL_S = 600


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--into", type=Path, default=PLACE)
    place: Path = options.parse_args().into
    wanted = "".join((HERE / name).read_text() for name in LOCKS)
    mark = place / ".installed"
    if mark.exists() and mark.read_text() == wanted:
        return 0
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not installed; it comes with Node 20 or newer", file=sys.stderr)
        return 1
    place.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, place / name)
    _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)])
    _run([sys.executable, "-m", "venv", "--clear", str(place / "python")])
    pip = [str(place / "python" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", "--require-hashes", "-r", str(HERE / "requirements.txt")])
    mark.write_text(wanted)
    return 0


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_S)


if __name__ == "__main__":
    sys.exit(main())
