"""Run the steps of `deploy/Containerfile` without a container engine: each in a scratch directory that stands for the image.

Absolute paths of the image become paths below the scratch directory, and so COPY and RUN do what they would do there. What needs
another user (useradd, an owner) is checked for its form and not done. At the end the program that the image would start
answers, and the health check finds it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "deploy" / "Containerfile"
PLACES: Final = ("/opt/toolgate", "/var/lib/toolgate", "/build")
"""Of the image; what lies elsewhere is the base image's."""
WITHOUT_ROOT: Final = {"useradd"}
"""Programs that only root may use."""


class Step(Struct, frozen=True):
    """One instruction."""

    word: str
    text: str
    stage: int


def steps(text: str) -> list[Step]:
    """Comments left out, continued lines joined."""
    found, stage = [], -1
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        stage += word == "FROM"
        found.append(Step(word, rest.strip(), stage))
    return found


class DryBuild:
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._directory = scratch
        self.ran: list[str] = []

    def below(self, text: str) -> str:
        """The same, with the image's paths below the scratch directory."""
        for place in PLACES:
            text = re.sub(rf"(?<![\w/.]){re.escape(place)}(?=[\s/:\"\\]|$)", f"{self._scratch}{place}", text)
        return text

    def do(self, step: Step) -> None:
        """Raises: CalledProcessError, OSError: the step cannot be done."""
        if step.word == "WORKDIR":
            self._directory = Path(self.below(step.text))
            self._directory.mkdir(parents=True, exist_ok=True)
        elif step.word == "COPY":
            self._copy(shlex.split(step.text))
        elif step.word == "RUN":
            self._run(step.text)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            if not Path(self.below(words[1])).exists():
                raise FileNotFoundError(words[1])
            return  # both stages have one scratch directory
        *sources, target = words
        place = Path(self.below(target)) if target.startswith("/") else self._directory / target
        for source in sources:
            into = place / Path(source).name if target.endswith("/") else place
            into.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, into)

    def _run(self, command: str) -> None:
        words = shlex.split(command)
        self.ran.append(command)
        if words[0] in WITHOUT_ROOT:
            return
        if words[0] == "install":
            command = re.sub(r"-[og] \d+ ", "", command)
            Path(self.below("/var/lib")).mkdir(parents=True, exist_ok=True)
        command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", command)
        subprocess.run(["sh", "-ec", self.below(command)], cwd=self._directory, check=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolgate-dry-") as name:
        build, scratch = DryBuild(Path(name)), Path(name)
        found = steps(FILE.read_text())
        for number, step in enumerate(found, start=1):
            print(f"[{number}/{len(found)}] {step.word} {step.text}", flush=True)
            build.do(step)
        home = scratch / "var" / "lib" / "toolgate"
        program = scratch / "opt" / "toolgate" / "bin" / "toolgate"
        subprocess.run([program, "init", home], check=True, stdout=subprocess.DEVNULL)
        server = subprocess.Popen([program, "serve", "--home", home, "--port", "0", "--json"], stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            port = json.loads(server.stdout.readline())["url"].rpartition(":")[2]
            python, health = scratch / "opt" / "toolgate" / "bin" / "python", scratch / "opt" / "toolgate" / "health.py"
            done = subprocess.run([python, "-I", health], env={"TOOLGATE_SERVER_PORT": port}, check=False)
        finally:
            server.terminate()
            server.wait(30)
    print("good: every step was done, and what was built answers" if not done.returncode else "the health check failed")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
