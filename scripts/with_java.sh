#!/usr/bin/env bash
# Runs a command with JAVA_HOME set to a Java that Spark 4.3 runs on (17 or newer), which is installed if there is none.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

is_new_enough() { # path of a java binary
  local version
  version=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

find_java() {
  local candidate
  for candidate in "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
    if [ -x "$candidate" ] && is_new_enough "$candidate"; then
      dirname "$(dirname "$(readlink -f "$candidate")")"
      return 0
    fi
  done
  return 1
}

if ! java_home=$(find_java); then
  "$here/apt.sh" "Java 17 or newer (Spark runs on it)" openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless
  java_home=$(find_java) || { echo "Java was installed but is not found: set JAVA_HOME and try again." >&2; exit 1; }
fi
export JAVA_HOME=$java_home
exec "$@"
