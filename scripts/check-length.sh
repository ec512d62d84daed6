#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when a file has grown past one job: Go 500 lines, C 350. Tests and generated files may be longer. And when a folder
# has more than 40 files that are neither.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bad=0
declare -A folder
while IFS= read -r f; do
  [[ -f $f && $f != *_test.go ]] || continue
  [[ $(head -n 1 -- "$f") == '// Code generated'* ]] && continue
  case $f in
  *.go) most=500 ;;
  *) most=350 ;;
  esac
  folder[${f%/*}]=$((${folder[${f%/*}]:-0} + 1))
  lines=$(wc -l <"$f")
  if ((lines > most)); then
    echo "$f: $lines lines, at most $most: split it" >&2
    bad=1
  fi
done < <(git ls-files -co --exclude-standard -- '*.go' '*.c' '*.h')
for f in "${!folder[@]}"; do
  if ((folder[$f] > 40)); then
    echo "$f: ${folder[$f]} files, at most 40: make rooms of it" >&2
    bad=1
  fi
done
exit $bad
