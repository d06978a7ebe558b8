"""Copy a home while its servers run:  python3 backup.py HOME TARGET   (as the server's user; TARGET must not exist)

The order matters. `secrets/` holds the newest signed checkpoint of each run: copied after the log it would be ahead of the copy,
which would then look cut. Lock files are copied, too: by them the next start finds the run that was going on. SQLite files are
copied by SQLite itself, so that no half transaction is among them. To restore: copy TARGET to where the home was, start the
server, and run `toolgate audit verify`.
"""

import shutil
import sqlite3
import sys
from pathlib import Path

LAST = "runs"
"""The log only grows, so that what is copied last holds everything that the rest knows of."""
SQLITE = b"SQLite format 3\x00"


def back_up(home: Path, target: Path) -> int:
    """How many files were copied. Raises: OSError, sqlite3.Error."""
    target.mkdir(mode=0o700)
    parts = sorted(home.iterdir(), key=lambda part: (part.name == LAST, part.name != "secrets", part.name))
    return sum(_copy(part, target / part.name) for part in parts)


def _copy(source: Path, target: Path) -> int:
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return 1
    if source.is_dir():
        target.mkdir(mode=source.stat().st_mode & 0o777)
        return sum(_copy(part, target / part.name) for part in sorted(source.iterdir()))
    if source.name.endswith(("-wal", "-shm", "-journal")) or not source.is_file():
        return 0  # what SQLite has beside a file is in its copy; a socket is of a process
    with source.open("rb") as file:
        is_database = file.read(len(SQLITE)) == SQLITE
    if is_database:
        _copy_database(source, target)
    else:
        shutil.copy2(source, target)
    return 1


def _copy_database(source: Path, target: Path) -> None:
    target.touch(mode=0o600)
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as old, sqlite3.connect(target) as new:
        old.backup(new)
    old.close()
    new.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: backup.py HOME TARGET")
    sys.stdout.write(f"{back_up(Path(sys.argv[1]), Path(sys.argv[2]))} files\n")
