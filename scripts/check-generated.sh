#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Generates bindings, objects and the tables of docs/ in place and fails when that changes any of them. Compares with
# the working tree and not with the last commit, so that it is as useful before a commit as in CI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sums() {
  git ls-files -co --exclude-standard -- '*_bpfel*.go' '*_bpfel*.o' '*_bpfeb*.go' '*_bpfeb*.o' 'internal/reason/reasontexts*.go' 'docs/*.md' docs/api.yaml |
    sort | xargs -r sha256sum
}

before=$(sums)
"${GO:-go}" generate ./...
after=$(sums)
[[ $before == "$after" ]] && exit

{
  echo "generated files were stale and are now up to date: commit them"
  diff <(cut -c67- <<<"$before") <(cut -c67- <<<"$after") || true
  comm -13 <(sort <<<"$before") <(sort <<<"$after") | cut -c67-
  git --no-pager diff --stat -- '*_bpfel*.go' '*_bpfel*.o' 'internal/reason/reasontexts*.go' 'docs/*.md' docs/api.yaml
} >&2
exit 1
