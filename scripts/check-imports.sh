#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when the folder of a stage imports that of another one: what two of them need moves down. And when the engine needs
# a stage, or names one. Stages are those that have a folder in bpf/ with reasons.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stages=$(printf '%s\n' bpf/*/reasons.h | cut -d/ -f2 | grep -vx core | paste -sd'|')
readonly stages
bad=$(go list -tags example -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}
{{end}}' ./internal/... | sed 's,culvert/,,g' | awk -v stages="^internal/($stages)(/|$)" '
  $1 ~ stages && $2 ~ stages {
    split($1, a, "/"); split($2, b, "/")
    if (a[2] != b[2])
      print $1 " imports " $2
  }')
[[ -z $bad ]] || { echo "a stage may not import another: $bad" >&2; exit 1; }

bad=$(go list -deps ./internal/datapath | grep -E "^culvert/internal/($stages)(/|$)" || true)
[[ -z $bad ]] || { echo "internal/datapath may not import a stage: $bad" >&2; exit 1; }
# Two are words of other things too.
names=$(tr '|' '\n' <<<"$stages" | grep -vxE 'route|example' | paste -sd'|')
bad=$(git ls-files -co --exclude-standard -- 'internal/datapath/*.go' | grep -v _test.go | xargs grep -nwiE "$names" || true)
[[ -z $bad ]] || { echo "internal/datapath may not name a stage: $bad" >&2; exit 1; }
