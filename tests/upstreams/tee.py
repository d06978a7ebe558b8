"""Between the gate and a program: passes every byte on, and writes those that the program sends into a file.

python tee.py FILE COMMAND ...
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path


def main() -> int:
    with subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        incoming = threading.Thread(target=_pass_on, args=(0, child.stdin.fileno(), None), daemon=True)
        incoming.start()
        with Path(sys.argv[1]).open("ab", buffering=0) as kept:
            _pass_on(child.stdout.fileno(), 1, kept.fileno())
        return child.wait()


def _pass_on(source: int, target: int, copy: int | None) -> None:
    while data := os.read(source, 65_536):
        if copy is not None:
            os.write(copy, data)
        while data:
            data = data[os.write(target, data) :]
    os.close(target)


if __name__ == "__main__":
    sys.exit(main())
