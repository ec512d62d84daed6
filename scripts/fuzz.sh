#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of the module in turn, FUZZTIME each. As root, for those that load programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

: "${FUZZTIME:=60s}"
[[ $FUZZTIME =~ ^[1-9][0-9]*[smh]$ ]] || {
  echo "fuzz: FUZZTIME=$FUZZTIME: write a number and s, m or h, such as 60s" >&2
  exit 2
}

own_back() {
  # Under sudo the corpus is written by root: give it back to the user.
  ((EUID == 0)) || sudo chown -R "$(id -u):$(id -g)" "$(go env GOCACHE)/fuzz" "$@" 2>/dev/null || true
}

# interrupt_after_fuzztime PID ends fuzzing as Ctrl-C does. It goes to the test alone, the child of
# go test, whichever of its threads started it.
interrupt_after_fuzztime() {
  sleep "$FUZZTIME"
  # shellcheck disable=SC2046 # several words, if any
  scripts/as-root.sh kill -INT $(cat /proc/"$1"/task/*/children)
}

# fuzz DIR TARGET. The flag -fuzztime would count what comes first, too: the start of the workers and
# all of the corpus once. That may take longer than FUZZTIME. And what is new would be made smaller for a minute each.
fuzz() {
  local out pid timer='' line status=0
  exec {out}< <(exec go test -run '^$' -fuzz "^$2\$" -fuzzminimizetime 20x -exec "'$PWD/scripts/as-root.sh'" "./$1" 2>&1)
  pid=$!
  while IFS= read -r line <&"$out"; do
    echo "$line"
    if [[ $line == *'now fuzzing'* && ! $timer ]]; then
      interrupt_after_fuzztime "$pid" >/dev/null 2>&1 &
      timer=$!
    fi
  done
  exec {out}<&-
  wait "$pid" || status=1
  [[ $timer ]] || { echo "fuzz: $2 has not been fuzzed" >&2; status=1; }
  [[ ! $timer ]] || kill "$timer" 2>/dev/null || true
  own_back "$1/testdata"
  return "$status"
}

found=0
while IFS=: read -r file target; do
  target=${target#func }
  target=${target%%(*}
  dir=$(dirname "$file")
  echo "fuzz ./$dir $target for $FUZZTIME"
  found=1
  fuzz "$dir" "$target" </dev/null || exit 1
done < <(git grep -o --untracked 'func Fuzz[A-Za-z0-9_]*(' -- '*_test.go')
((found)) || { echo "fuzz: no fuzz target in this tree" >&2; exit 1; }
