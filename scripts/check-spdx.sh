#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when a source file does not name its licence in its first two lines.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly kernel_side='SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause'
readonly user_side='SPDX-License-Identifier: Apache-2.0'

bad=0
while IFS= read -r f; do
  [[ -f $f ]] || continue
  case $f in
  bpf/*.c | bpf/*.h) want=$kernel_side ;;
  *) want=$user_side ;;
  esac
  first=$(head -n 2 -- "$f")
  [[ $first == '// Code generated'* ]] && continue
  if [[ $first != *"$want"* ]]; then
    echo "$f: no line '$want' at its top" >&2
    bad=1
  fi
done < <(git ls-files -co --exclude-standard -- '*.go' '*.c' '*.h' '*.sh' '*.awk' Makefile .ci/run 'dist/*.service' 'dist/*.sysusers' 'dist/*.toml' 'dist/deb/*' 'internal/web/static/*')
exit $bad
