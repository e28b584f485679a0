#!/usr/bin/env bash
# Runs the named tests (folders, files, single ones) in two parts: those without Spark side by side on all cores, then the
# others one after the other, as a Spark job wants the cores for itself. Both are run, and if one fails, so does the whole.
#   scripts/test.sh path [path ...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

beside=() alone=()
for path in "$@"; do
  case $path/ in
    tests/unit/* | tests/simulation/*) beside+=("$path") ;;
    *) alone+=("$path") ;;
  esac
done

# Tests start hundreds of processes: none should compile again what another one has.
unset PYTHONDONTWRITEBYTECODE

ENOUGH_KB=$((4 * 1024 * 1024))
# They open thousands of small databases, and each waits for the disk many times over. Where memory can be had as a folder,
# nothing waits; a SIGKILL looks the same in it.
in_memory() {
  [ "$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -ge $ENOUGH_KB ] 2>/dev/null && mktemp -d /dev/shm/cutwater.XXXXXX
}

run_beside() {
  local folder status
  folder=$(in_memory) && export TMPDIR=$folder
  .venv/bin/pytest --numprocesses=logical --dist=worksteal "$@"
  status=$?
  [ -z "$folder" ] || if [ $status -eq 0 ]; then rm -rf "$folder"; else echo "what the failed tests wrote: $folder"; fi
  return $status
}

failed=()
[ ${#beside[@]} -eq 0 ] || (run_beside "${beside[@]}") || failed+=("tests side by side")
[ ${#alone[@]} -eq 0 ] || .venv/bin/pytest "${alone[@]}" || failed+=("tests one after the other")
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
