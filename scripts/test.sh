#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests, several packages at a time: `unit` those that need no root (UNIT_PKGS), `root` the others or
# those that ONLY names, `race` both under the race detector, `all` both, and beside them what runs in guests (BASELINE is
# what to compare instructions with). TASKS is how many at a time: more than there are CPUs, because most tests wait most of the
# time, for timers, links and the kernel's grace periods.
# The test binaries are built by the calling user and only run as root, so nothing root-owned is left
# in the tree or in the build cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Those that take longest begin first, so that none is left over at the end.
readonly longest=(internal/e2e cmd/culvert internal/datapath internal/filter/filterplane internal/lb/lbplane internal/bench/scenario internal/bench/scenario/lbrun internal/lab internal/difftest/routejudge internal/lb/announce internal/scion/scionplane)

# Those with a stage of their own, which other programs do not have: they are built with the tag of the same name.
readonly tagged=(internal/example)

# Those that look at the kernel's own threads, which are only among the host's processes.
readonly host=(internal/datapath internal/bench/load internal/bench/scenario internal/bench/scenario/filterrun internal/bench/scenario/insn)

export out=$PWD/out totals=$PWD/out/test-totals

# task_package RUNNER DIR LOG runs the tests of a package and ends with a line like that of go-test(1).
task_package() {
  local status=0 verdict='ok  ' TIMEFORMAT='%1Rs, %1Us user, %1Ss system'
  { time (cd "$2" && $1 "$out/tests/${2##*/}.test" -test.v -test.count=1 -test.parallel 4 -test.timeout 30m 2>&1); } \
    2>"$3.time" || status=$?
  ((status == 0)) || verdict=FAIL
  printf '%s\t%s\t%s\n' "$verdict" "$2" "$(<"$3.time")"
  rm "$3.time"
  return $status
}

# The oldest kernel counts rows of each program and of what changes programs (captures, sFlow, workers): whether its verifier takes
# them, and what they cost there. `make bench-insn` counts all rows on both kernels.
readonly oldest=(cost/culvert-nomac cost/culvert-cold cost/culvert-general cost/culvert-switch-cold
  cost/filter-pass-1 cost/filter-drop cost/filter-shape-1000 cost/filter-limit-src cost/filter-protect cost/filter-set-10-cold
  cost/lb-known cost/lb-known6 cost/lb-new cost/route-mirror4 cost/route-mirror6 cost/route-fib4 cost/route-general4 cost/route-multi4 cost/route-multi-fib6
  cost/capture-filter-port cost/sflow-drop cost/spread-scion path/culvert-cold path/worker-scion)

# Guests take what CPU time is left over: how fast they are changes nothing of what they find.
# Rows of a kind are counted in a guest of their own, since a guest has one CPU.
task_cost() { nice -n 19 bin/culvert bench insn --baseline "$BASELINE" --kernel 6.12 --rows 'cost/*'; }
task_path() { nice -n 19 bin/culvert bench insn --baseline "$BASELINE" --kernel 6.12 --rows 'path/*'; }
task_oldest() { nice -n 19 bin/culvert bench insn --baseline "$BASELINE" --kernel 6.1 --rows "$(IFS=, && echo "${oldest[*]}")"; }
task_vlan() { nice -n 19 scripts/test-kernels.sh routejudge nexthop pipelinefuzz; }

# task KIND [DIR] keeps the whole output of a task in out/test-NAME.log, and shows it, of tests the short form, when
# the task has ended: one at a time.
task() {
  local kind=$1 dir=${2:-} status=0 name log
  name=${dir:-$kind}
  log=$out/test-${name//\//-}.log
  case $kind in
  unit) task_package '' "$dir" "$log" ;;
  host) task_package "$PWD/scripts/as-root.sh" "$dir" "$log" ;;
  root) task_package "$PWD/scripts/as-root-apart.sh" "$dir" "$log" ;;
  *) "task_$kind" ;;
  esac >"$log" 2>&1 || status=1
  (
    flock 9
    if [[ -n $dir ]]; then
      awk -v totals="$totals" -f scripts/tally.awk "$log"
    else
      cat "$log"
      ((status == 0)) && echo "ok  	$kind" || echo "FAIL	$kind"
    fi
  ) 9>>"$totals.lock"
  return $status
}

if [[ ${1:-} == task ]]; then
  shift
  task "$@"
  exit
fi

readonly which=${1:?usage: test.sh unit|root|race|all}
read -ra unit <<<"${UNIT_PKGS:-}"
read -ra only <<<"${ONLY:-}"

# directories PACKAGE... lists those that have tests, by their directory.
directories() {
  (($#)) || return 0
  go list -tags "$(IFS=,; echo "${tagged[*]##*/}")" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' "$@" | sed "s,^$PWD/,," | sort
}

rm -rf out/tests out/test-*.log
mkdir -p out/tests
echo 0 0 0 >"$totals"
status=0
tasks=()
mapfile -t unit < <(directories "${unit[@]}")
mapfile -t root < <(comm -23 <(directories ./...) <(printf '%s\n' "${unit[@]}"))
((${#only[@]} == 0)) || mapfile -t root < <(comm -12 <(printf '%s\n' "${root[@]}") <(directories "${only[@]/#/./}"))
case $which in
unit) root=() ;;
root) unit=() ;;
race) ;;
*) tasks+=(cost vlan path oldest) ;;
esac
has() { [[ " ${*:2} " == *" $1 "* ]]; }
add() { if has "$1" "${host[@]}"; then tasks+=("host $1"); else tasks+=("root $1"); fi; }
for dir in "${longest[@]}"; do
  has "$dir" "${root[@]}" && add "$dir"
done
for dir in "${root[@]}"; do
  has "$dir" "${longest[@]}" || add "$dir"
done
tasks+=("${unit[@]/#/unit }")

echo "building the tests of $((${#unit[@]} + ${#root[@]})) packages"
mapfile -t packages < <(printf '%s\n' "${unit[@]}" "${root[@]}" | grep -vxF "$(printf '%s\n' "${tagged[@]}")" | sed 's,^,./,')
race=()
if [[ $which == race ]]; then
  race=(-race)
  # Also what bin/culvert finds in labs, whose own output nobody reads. Commands that end wait 1 s for reports otherwise.
  export CGO_ENABLED=1 GORACE="log_path=$PWD/out/race suppressions=$PWD/scripts/race.supp atexit_sleep_ms=20"
  rm -f out/race.*
  go build -race -o bin/culvert ./cmd/culvert
fi
((${#packages[@]} == 0)) || go test -c "${race[@]}" -ldflags='-s -w' -o out/tests/ "${packages[@]}"
for dir in "${tagged[@]}"; do
  if has "$dir" "${root[@]}"; then go test -c "${race[@]}" -tags "${dir##*/}" -ldflags='-s -w' -o out/tests/ "./$dir"; fi
done
# The scheduler's autogroups give each session (setsid(2)) a share of its own. With as many sessions as labs make, Linux 6.18
# leaves some of them without CPU time for 10 s and more, and BFD and BGP lose their sessions.
readonly autogroup=/proc/sys/kernel/sched_autogroup_enabled
set_autogroup() { scripts/as-root.sh sh -c "echo $1 >$autogroup"; }
if [[ $which != unit && -r $autogroup && $(<"$autogroup") == 1 ]]; then
  trap 'set_autogroup 1' EXIT
  trap 'exit 1' INT TERM HUP
  if set_autogroup 0; then
    echo "autogroup scheduling is off until the tests have ended ($autogroup)"
  else
    echo "autogroup scheduling stays on: tests of timers may fail on a busy machine ($autogroup)" >&2
  fi
fi

echo "running them, ${TASKS:=8} at a time"
printf '%s\n' "${tasks[@]}" | xargs -P "$TASKS" -L 1 scripts/test.sh task || status=1

echo "the slowest tests:"
awk '/^--- (PASS|FAIL|SKIP): / {
  name = FILENAME
  gsub(/.*\/test-|\.log$/, "", name)
  printf "%8.2fs  %s  %s\n", substr($NF, 2), name, $3
}' out/test-*.log | sort -rn | awk 'NR <= 10'

for report in out/race.*; do
  [[ -e $report ]] || continue
  echo "a data race, whole in $report:"
  head -n 20 "$report"
  status=1
done

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
