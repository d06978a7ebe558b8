"""Where code comes from: where Python and Toolgate are installed, never the directory that a command is started in.

A client starts `toolgate stdio` in the project that its user has opened, which may be a stranger's. Only modules that the
interpreter has loaded before may be imported here.
"""

import os
import sys


def leave_the_directory() -> None:
    """Side effects: relative entries of `sys.path`, and those that came from relative ones in PYTHONPATH, are gone."""
    named = os.environ.get("PYTHONPATH", "")
    entries = named.split(os.pathsep) if named else []
    here = {_absolute(entry) for entry in entries if not entry.startswith("/")} - set(entries)
    sys.path[:] = [place for place in sys.path if place.startswith("/") and place not in here]


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)  # noqa: PTH100 (pathlib is not loaded yet, and could be the directory's)
    except OSError:  # the directory is gone, and nothing can be imported from it
        return ""
