#!/usr/bin/env bash
# Installs the first of the named Debian packages that the archive has. Says what to do when it may not.
#   scripts/apt.sh "what it is for" package [package ...]
set -euo pipefail
purpose=$1
shift

fail() {
  echo "cutwater needs $purpose. $1" >&2
  exit 1
}

command -v apt-get >/dev/null || fail "This machine has no apt-get: install it with your own package manager (on Debian: $1) and try again."
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "You are not root and there is no sudo: ask somebody who may to run 'apt-get install $1', then try again."
  as_root=(sudo)
fi

echo "installing $purpose (apt-get; tries $*)" >&2
"${as_root[@]}" apt-get update -qq >&2 || fail "'apt-get update' failed: see above; is there a network?"
for package in "$@"; do
  if apt-cache show "$package" >/dev/null 2>&1; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 \
      || fail "'apt-get install $package' failed: see above."
    exit 0
  fi
done
fail "The archive has none of: $*."
