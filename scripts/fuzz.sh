#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of the module in turn, FUZZTIME each. As root, for those that load programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

own_back() {
  # Under sudo the corpus is written by root: give it back to the user.
  ((EUID == 0)) || sudo chown -R "$(id -u):$(id -g)" "$(go env GOCACHE)/fuzz" "$@" 2>/dev/null || true
}

found=0
while IFS=: read -r file target; do
  dir=$(dirname "$file")
  target=${target#func }
  target=${target%%(*}
  echo "fuzz ./$dir $target for ${FUZZTIME:=60s}"
  found=1
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -exec "'$PWD/scripts/as-root.sh'" "./$dir" ||
    { own_back "$dir/testdata"; exit 1; }
  own_back "$dir/testdata"
done < <(git grep -o --untracked 'func Fuzz[A-Za-z0-9_]*(' -- '*_test.go')
((found)) || { echo "fuzz: no fuzz target in this tree" >&2; exit 1; }
