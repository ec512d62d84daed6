#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs all fuzz targets of the module side by side for FUZZTIME, as root, for those that load programs. Ends with status 1
# if any of them finds something, and says where that is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

: "${FUZZTIME:=60s}"
[[ $FUZZTIME =~ ^[1-9][0-9]*[smh]$ ]] || {
  echo "fuzz: FUZZTIME=$FUZZTIME: write a number and s, m or h, such as 60s" >&2
  exit 2
}
seconds=${FUZZTIME%[smh]}
case $FUZZTIME in
*m) seconds=$((seconds * 60)) ;;
*h) seconds=$((seconds * 3600)) ;;
esac

targets=() # DIR:TARGET
while IFS=: read -r file target; do
  target=${target#func }
  targets+=("$(dirname "$file"):${target%%(*}")
done < <(git grep -o --untracked 'func Fuzz[A-Za-z0-9_]*(' -- '*_test.go' | sort)
if [[ ${TARGETS:-} ]]; then
  wanted=()
  for t in "${targets[@]}"; do
    [[ " $TARGETS " != *" ${t#*:} "* ]] || wanted+=("$t")
  done
  targets=("${wanted[@]}")
fi
((${#targets[@]})) || { echo "fuzz: no fuzz target in this tree, or none of that name" >&2; exit 1; }

# Each target has one process that coordinates and at least one that works. What a process may use is bounded.
cpus=$(nproc)
parallel=$((cpus > ${#targets[@]} ? cpus / ${#targets[@]} : 1))
export CGO_ENABLED=0 GOMAXPROCS=$((parallel + 1)) GOMEMLIMIT=${GOMEMLIMIT:-1GiB}
cache=$(go env GOCACHE)/fuzz
module=$(go list -m)
work=$(mktemp -d "${TMPDIR:-/tmp}/culvert-fuzz.XXXXXX")

# interrupt_all ends the targets as Ctrl-C ends one: they write what they have found.
interrupt_all() {
  local file pid
  for file in "$work"/*.pid; do
    [[ -s $file ]] || continue
    pid=$(<"$file")
    : >"$file"
    scripts/as-root.sh kill -INT "$pid" 2>/dev/null || true
  done
}

clean_up() {
  interrupt_all
  wait
  # Under sudo the corpus and what was found are written by root: give them back to the user.
  ((EUID == 0)) || sudo chown -R "$(id -u):$(id -g)" "$cache" $(find internal -name testdata) 2>/dev/null || true
  rm -rf "$work"
}
interrupted=
trap clean_up EXIT
trap 'interrupted=1; interrupt_all' INT TERM HUP

# fuzz DIR TARGET runs one for $seconds. They count from when it has run its corpus once, which may take longer. What is
# new would be made smaller for a minute each without -fuzzminimizetime.
fuzz() {
  local dir=$1 target=$2 out pid line='' deadline=0 begun status=0 timed=() interrupted=0
  local -a args=(-test.paniconexit0 -test.run '^$' -test.fuzz "^$target\$" -test.fuzzminimizetime 20x -test.parallel "$parallel"
    -test.fuzzcachedir "$cache/$module/$dir")
  exec {out}< <(cd "$dir" && exec "$root/scripts/as-root.sh" "$work/${dir//\//-}.test" "${args[@]}" 2>&1)
  pid=$!
  echo "$pid" >"$work/$target.pid"
  begun=$SECONDS
  while true; do
    timed=()
    ((deadline == 0)) || timed=(-t "$((deadline > SECONDS ? deadline - SECONDS : 1))")
    if IFS= read -r "${timed[@]}" line <&"$out"; then
      printf '%-16s %s\n' "$target" "$line"
      echo "$line" >>"$work/$target.log"
      [[ $line != *'now fuzzing'* || $deadline != 0 ]] || { deadline=$((SECONDS + seconds)) && begun=$SECONDS; }
    elif (($? <= 128)); then
      break # its output has ended
    fi
    if ((deadline > 0 && SECONDS >= deadline && !interrupted)); then
      interrupted=1
      scripts/as-root.sh kill -INT "$pid" 2>/dev/null || true
    fi
  done
  exec {out}<&-
  wait "$pid" || status=$?
  # Tests that clean up after themselves when they are interrupted end so.
  ((!interrupted || status != 130)) || grep -q 'FAIL' "$work/$target.log" || status=0
  : >"$work/$target.pid"
  ((deadline)) || { echo "$target has not been fuzzed" >>"$work/$target.log" && status=1; }
  echo "$((status != 0)) $((SECONDS - begun))" >"$work/$target.end"
}

for dir in $(printf '%s\n' "${targets[@]%%:*}" | sort -u); do
  echo "building the targets of $dir"
  go test -c -fuzz . -o "$work/${dir//\//-}.test" "./$dir"
  [[ ! $interrupted ]] || exit 130
done
echo "fuzzing ${#targets[@]} targets for $FUZZTIME, with $parallel at work on each"
jobs=()
for t in "${targets[@]}"; do
  fuzz "${t%%:*}" "${t#*:}" </dev/null &
  jobs+=($!)
done
for job in "${jobs[@]}"; do
  # A signal ends the wait before the job has ended.
  while kill -0 "$job" 2>/dev/null; do wait "$job" || true; done
done

status=0
printf '\n%-16s %12s %16s %8s\n' target execs 'new interesting' time
for t in "${targets[@]}"; do
  dir=${t%%:*} target=${t#*:}
  log=$work/$target.log
  read -r failed took <"$work/$target.end" || { failed=1 took=0; }
  last=$(grep -o 'execs: .*' "$log" 2>/dev/null | tail -n 1) || true
  execs=$(sed -n 's/^execs: \([0-9]*\).*/\1/p' <<<"$last")
  new=$(sed -n 's/.*new interesting: \([0-9]*\).*/\1/p' <<<"$last")
  printf '%-16s %12s %16s %7ss\n' "$target" "${execs:-0}" "${new:-0}" "$took"
  ((failed)) || continue
  status=1
  found=$(sed -n 's/.*Failing input written to //p' "$log" | tail -n 1)
  if [[ $found ]]; then
    echo "fuzz: $target found ./$dir/$found; again: go test -exec '$root/scripts/as-root.sh' -run '$target/${found##*/}' ./$dir" >>"$work/found"
  else
    echo "fuzz: $target failed: $(grep -v '^fuzz: elapsed' "$log" | tail -n 1)" >>"$work/found"
  fi
done
[[ ! -s $work/found ]] || cat "$work/found" >&2
[[ ! $interrupted ]] || exit 130
exit "$status"
