#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when the folder of a stage imports that of another one: what two of them need moves down. And when the engine needs
# a stage, or names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly stages='filter|lb|scion|route|decap'
bad=$(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}' ./internal/... | sed 's,culvert/,,g' | awk -v stages="^internal/($stages)(/|$)" '
  $1 ~ stages && $2 ~ stages {
    split($1, a, "/"); split($2, b, "/")
    if (a[2] != b[2])
      print $1 " imports " $2
  }')
[[ -z $bad ]] || { echo "a stage may not import another: $bad" >&2; exit 1; }

bad=$(go list -deps ./internal/datapath | grep -E "^culvert/internal/($stages)(/|$)" || true)
[[ -z $bad ]] || { echo "internal/datapath may not import a stage: $bad" >&2; exit 1; }
bad=$(git ls-files -co --exclude-standard -- 'internal/datapath/*.go' | grep -v _test.go | xargs grep -nwiE 'filter|lb|scion|decap' || true)
[[ -z $bad ]] || { echo "internal/datapath may not name a stage: $bad" >&2; exit 1; }
