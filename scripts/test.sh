#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the Go tests: `unit` those that need no root (UNIT_PKGS), `root` the others, `all` both.
# The test binaries are built by the calling user and only run as root, so nothing root-owned is left
# in the tree or in the build cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly which=${1:?usage: test.sh unit|root|all}
read -ra unit <<<"${UNIT_PKGS:-}"

mkdir -p out
totals=$PWD/out/test-totals
rm -f out/test-*.log
echo 0 0 0 >"$totals"
status=0

# run_tests NAME GO-TEST-ARGUMENT... keeps the whole output in out/test-NAME.log.
run_tests() {
  local name=$1
  shift
  go test -count=1 -v "$@" 2>&1 | tee "out/test-$name.log" |
    awk -v totals="$totals" -f scripts/tally.awk || status=1
}

root_packages() {
  comm -23 <(go list ./... | sort) <(((${#unit[@]})) && go list "${unit[@]}" | sort)
}

if [[ $which != root ]] && ((${#unit[@]})); then
  echo "tests without root"
  run_tests unit -timeout 10m "${unit[@]}"
fi
if [[ $which != unit ]]; then
  echo "tests as root, one package at a time"
  mapfile -t root < <(root_packages)
  run_tests root -timeout 30m -p 1 -exec "'$PWD/scripts/as-root.sh'" "${root[@]}"
fi

read -r passed _ skipped <"$totals"
if ((skipped > 0)); then
  echo "skipped tests count as failed: $(grep -h -- '--- SKIP' out/test-*.log | tr -s ' \n' ' ')"
  status=1
fi
if ((passed == 0)); then
  echo "no test passed"
  status=1
fi
((status == 0)) || echo "the whole output is in out/test-*.log"
awk -v totals="$totals" -v last=1 -f scripts/tally.awk </dev/null
exit $status
