#!/usr/bin/env bash
# Runs the named tests (folders, files, single ones) in two parts: those without Spark on all cores, then those with Spark one after
# the other, as a Spark job wants the cores for itself. Both parts are run, and if one fails, so does the whole.
#   scripts/test.sh path [path ...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

plain=() on_spark=()
for path in "$@"; do
  case $path/ in
    tests/unit/* | tests/simulation/*) plain+=("$path") ;;
    *) on_spark+=("$path") ;;
  esac
done

# Tests start hundreds of processes: none should compile again what another one has.
unset PYTHONDONTWRITEBYTECODE

# They open thousands of small databases, and each waits for the disk many times over. Where memory can be had as a folder,
# nothing waits; a SIGKILL looks the same in it.
ENOUGH_KB=$((4 * 1024 * 1024))
folder=
if [ "$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -ge $ENOUGH_KB ] 2>/dev/null; then
  # Open to all, as such a folder is: some tests read as another user.
  folder=$(mktemp -d /dev/shm/cutwater.XXXXXX) && chmod 1777 "$folder" && export TMPDIR=$folder
fi
failed=()
trap '[ -z "$folder" ] || [ ${#failed[@]} -gt 0 ] || rm -rf "$folder"' EXIT
trap 'exit 130' INT # pytest ends as if it had only failed, and the second part would begin

# A JVM that lives for seconds spends half of its work on compiling code well that it then hardly runs.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1" SPARK_LAUNCHER_OPTS=-XX:TieredStopAtLevel=1

[ ${#plain[@]} -eq 0 ] || .venv/bin/pytest --numprocesses=logical --dist=worksteal "${plain[@]}" || failed+=("without Spark")
[ ${#on_spark[@]} -eq 0 ] || .venv/bin/pytest "${on_spark[@]}" || failed+=("on Spark")

[ ${#failed[@]} -gt 0 ] || exit 0
printf 'failed: tests %s\n' "${failed[@]}" >&2
[ -z "$folder" ] || echo "what they wrote is in $folder" >&2
exit 1
