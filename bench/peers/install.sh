#!/usr/bin/env bash
# One virtual environment per peer under bench/.venvs (git-ignored): apache-flink pins old packages, so they cannot share one.
#   bench/peers/install.sh                all peers
#   bench/peers/install.sh flink spark    only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venvs=bench/.venvs
python=${PYTHON:-python3}

packages() {
  case "$1" in
    flink) echo "apache-flink==2.3.0 setuptools<81" ;; # its pemja and beam still import pkg_resources
    spark) echo "pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1 protobuf==6.33.1" ;;
    bytewax) echo "bytewax==0.21.1" ;;
    pathway) echo "pathway==0.33.0" ;;
    *) return 1 ;;
  esac
}

[ $# -gt 0 ] || set -- flink spark bytewax pathway
for peer in "$@"; do
  wanted=$(packages "$peer") || { echo "unknown peer '$peer': use flink, spark, bytewax or pathway" >&2; exit 2; }
  stamp="$venvs/$peer/.installed"
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    echo "$peer: ready"
    continue
  fi
  echo "$peer: installing $wanted"
  rm -rf "${venvs:?}/$peer"
  "$python" -m venv "$venvs/$peer"
  # shellcheck disable=SC2086  # the words are separate requirements
  if "$venvs/$peer/bin/pip" install --quiet --disable-pip-version-check $wanted; then
    echo "$wanted" >"$stamp"
  else
    echo "$peer: could not be installed; it will stand in the table as not measured" >&2
  fi
done
