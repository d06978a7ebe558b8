#!/bin/sh
# Print the path of a Python that can make virtual environments: `find_python.sh 3.12` that version, `find_python.sh` the newest
# that Toolgate supports. A name or a path (`python3.12`, `/opt/python/bin/python3`) is taken as it is, if it works.
#
# A shim of pyenv is on the PATH whether or not its version is chosen, so each candidate is run before it is believed, and the
# folders where version managers keep interpreters are searched, too.
set -u

works() { # a program, and the version it must have, if any
  "$1" -c 'import sys, venv, ensurepip
wanted = sys.argv[1:]
sys.exit(sys.version_info < (3, 11) or bool(wanted) and "%d.%d" % sys.version_info[:2] != wanted[0])' ${2:+"$2"} >/dev/null 2>&1
}

find_version() {
  for found in "$(command -v "python$1")" \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1"*/bin/"python$1" \
    "${XDG_DATA_HOME:-$HOME/.local/share}/uv/python/cpython-$1"*/bin/"python$1"; do
    if [ -n "$found" ] && works "$found" "$1"; then
      echo "$found"
      return 0
    fi
  done
  return 1
}

case "${1:-}" in
"")
  for version in 3.13 3.12 3.11; do
    find_version "$version" && exit 0
  done
  works python3 && command -v python3 && exit 0
  echo "Toolgate needs Python 3.11, 3.12 or 3.13 with venv (Debian: apt-get install python3-venv)" >&2
  ;;
[0-9]*)
  find_version "$1" && exit 0
  echo "Python $1 is missing: neither python$1 on the PATH nor one of pyenv or uv works. Install it, with venv: pyenv install $1" >&2
  ;;
*)
  works "$1" && command -v "$1" && exit 0
  echo "$1 is not a Python 3.11 or newer that can make virtual environments" >&2
  ;;
esac
exit 1
