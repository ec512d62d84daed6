#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when a file has grown past one job: Go 500 lines, C 350. Tests and generated files may be longer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bad=0
while IFS= read -r f; do
  [[ -f $f && $f != *_test.go ]] || continue
  [[ $(head -n 1 -- "$f") == '// Code generated'* ]] && continue
  case $f in
  *.go) most=500 ;;
  *) most=350 ;;
  esac
  lines=$(wc -l <"$f")
  if ((lines > most)); then
    echo "$f: $lines lines, at most $most: split it" >&2
    bad=1
  fi
done < <(git ls-files -co --exclude-standard -- '*.go' '*.c' '*.h')
exit $bad
