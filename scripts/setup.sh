#!/usr/bin/env bash
# Makes .venv from requirements.lock, with this package in it (editable). Called by make; quick when nothing is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
  is_new_enough "$python" && break
  python=
done
[ -n "$python" ] || { echo "cutwater needs Python 3.11 or newer, and found none: set PYTHON=/path/to/python3 and try again." >&2; exit 1; }

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    own=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    scripts/apt.sh "Python's venv module" "$own" python3-venv
  fi
  echo "making .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
fi

echo "installing what requirements.lock names (some minutes the first time)"
pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
"${pip[@]}" install --require-hashes -r requirements.lock
# Its dependencies, the build backend among them, came from the lock: nothing unpinned is fetched here.
"${pip[@]}" install --no-deps --no-build-isolation --editable .
touch .venv/.ready
