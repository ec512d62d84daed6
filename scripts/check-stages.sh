#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when bpf/core depends on a stage, or a stage on another one: bpf/stages.h alone may know them all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../bpf"

bad=0
while read -r dep; do
  case $dep in
  core/* | /*) ;;
  *)
    echo "a header of bpf/core depends on bpf/$dep: what core needs of a stage comes through stages.h" >&2
    bad=1
    ;;
  esac
done < <("${CLANG:-clang-19}" -MM -D__TARGET_ARCH_x86 '-DSTAGES(STAGE)=' -I. -I/usr/include/x86_64-linux-gnu core/*.h | sed 's/^[^:]*: *//' | tr -d '\\' | tr -s ' ' '\n' | sed '/^$/d' | sort -u)

stages=$(printf '%s\n' */reasons.h | cut -d/ -f1 | grep -vx core | paste -sd'|')
if grep -nE "\b($stages|${stages^^})_" core/*.h; then
  echo "headers of bpf/core name a stage: see above" >&2
  bad=1
fi

# Tests may look into a stage.
for f in */*.[ch]; do
  folder=${f%%/*}
  [[ $folder == core || $folder == test ]] && continue
  while read -r header; do
    case $header in
    core/* | stages.h) ;;
    */*)
      echo "bpf/$f includes $header: a stage knows no other, put what both need into bpf/core" >&2
      bad=1
      ;;
    esac
  done < <(sed -n 's/^#include "\(.*\)"$/\1/p' "$f")
done
exit $bad
