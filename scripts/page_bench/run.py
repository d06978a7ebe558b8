"""Lighthouse (mobile) over a fresh paper of each tier, or over whole papers: several runs, the worst of each category counts.

    make page-bench, or: python -m scripts.page_bench.run [--runs 5] [--tiers gold]
    TOOLGATE_PAPERS=DIR python -m scripts.page_bench.run --papers [--write]     papers of others in DIR and our own; axe, too

Timing is noisy, so this is a bench and no gate: it exits 1 below the goals, and nothing else depends on it. The reports
are kept under artifacts/lighthouse/. Needs node, npm and chromium, and Pandoc for whole papers. `--write` puts the numbers into
benchmarks/results and docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.papers import keep, sources
from tests.packs.lra.browser import axe_source, launch, served, tab
from toolgate.packs.lra.build.assemble import build
from toolgate.packs.lra.build.convert import SourceRequest
from toolgate.packs.lra.build.scaffold import TIERS, ScaffoldOptions, Tier, scaffold
from toolgate.packs.lra.cli.making.building import beside
from toolgate.packs.lra.cli.making.pandoc import find

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "lighthouse"
RESULTS = ROOT / "artifacts" / "lighthouse"
PACKAGE = "lighthouse@12.8.2"
"""The last major that runs on Node 20."""
GOALS = {"performance": 99, "accessibility": 100, "best-practices": 100, "seo": 100}
INSTALL_S, RUN_S = 600, 180


VIEWS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1400, "height": 1000}},
    "dark": {"viewport": {"width": 1400, "height": 1000}, "color_scheme": "dark"},
    "print": {"viewport": {"width": 794, "height": 1123}},
    "320px": {"viewport": {"width": 320, "height": 640}},
    "forced": {"viewport": {"width": 1400, "height": 1000}, "forced_colors": "active"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    parser.add_argument("--papers", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None or shutil.which("npm") is None:
        sys.stderr.write("page-bench needs chromium and npm on the PATH.\n")
        return 2
    lighthouse = _lighthouse()
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        names = _build_papers(Path(folder)) if asked.papers else _write_tiers(Path(folder), asked.tiers)
        with served(Path(folder)) as site:
            found = {name: _worst(lighthouse, browser, f"{site}{name}/", name, asked.runs) for name in names}
            violations = _axe(site, names) if asked.papers else dict.fromkeys(names, 0)
    if asked.write:
        pages = {name: [*row.values(), violations[name]] for name, row in found.items()}
        keep({"pages": pages, "pages_load": round(os.getloadavg()[1], 1)})
    reached = all(row[name] >= goal for row in found.values() for name, goal in GOALS.items())
    return 0 if reached and not any(violations.values()) else 1


def _worst(lighthouse: str, browser: str, address: str, name: str, count: int) -> dict[str, int]:
    runs = [_run(lighthouse, browser, address, RESULTS / f"{name}-{n + 1}.json") for n in range(count)]
    worst = {category: min(run[category] for run in runs) for category in GOALS}
    shown = "  ".join(f"{category} {score} (goal {GOALS[category]})" for category, score in worst.items())
    sys.stdout.write(f"{name:<13} worst of {count}: {shown}\n")
    sys.stdout.flush()
    return worst


def _axe(site: str, names: list[str]) -> dict[str, int]:
    """How many violations each page has, over all views."""
    found = dict.fromkeys(names, 0)
    with sync_playwright() as engine:
        browser = launch(engine)
        for name, (view, options) in product(names, VIEWS.items()):
            with tab(browser, bypass_csp=True, **options) as opened:
                opened.page.goto(f"{site}{name}/")
                if view == "print":
                    opened.page.emulate_media(media="print")
                opened.page.add_script_tag(content=axe_source())
                told = opened.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
                found[name] += len(told)
                for one in told:
                    sys.stdout.write(f"{name}, {view}: {one['id']} at {one['nodes'][0]['target']}\n")
        browser.close()
    sys.stdout.write(f"axe violations: {sum(found.values())} in {len(names)} pages and {len(VIEWS)} views\n")
    return found


def _build_papers(folder: Path) -> list[str]:
    """The papers that `benchmarks.papers` measures, built; the name of each."""
    names = []
    for name, source, _ in sources(folder / "sources"):
        if source.name == "longer.md":
            continue
        names.append(name.partition(" ")[0])
        _put(folder / names[-1], build(SourceRequest(source.name, beside(source.parent), find())).files)
    return names


def _write_tiers(folder: Path, tiers: list[Tier]) -> list[str]:
    for tier in tiers:
        _put(
            folder / tier,
            scaffold(ScaffoldOptions("my-paper", "2026-11-15", "Counting lattice points in a circle", tier=tier)).files,
        )
    return list(tiers)


def _put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _lighthouse() -> str:
    program = CACHE / "node_modules" / ".bin" / "lighthouse"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--prefix",
            str(CACHE),
            PACKAGE,
        ]
        subprocess.run(command, check=True, timeout=INSTALL_S)
    return str(program)


def _run(lighthouse: str, browser: str, address: str, report: Path) -> dict[str, int]:
    flags = "--headless=new --no-sandbox --disable-dev-shm-usage"
    command = [lighthouse, address, "--quiet", "--output=json", f"--output-path={report}", f"--chrome-flags={flags}"]
    command.append(f"--only-categories={','.join(GOALS)}")
    subprocess.run(command, check=True, timeout=RUN_S, env=os.environ | {"CHROME_PATH": browser})
    found = json.loads(report.read_text(encoding="utf-8"))["categories"]
    return {name: round(100 * found[name]["score"]) for name in GOALS}


if __name__ == "__main__":
    sys.exit(main())
