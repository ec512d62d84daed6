#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo: three ASes in a lab of its own, the tools of SCION through culvert, a flood with the live
# table, and culvert's speed beside the reference router's. Needs root; `make demo` calls it so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly culvert=bin/culvert lab=demo-$$
child='' flood='' log=''

# end PID lets a process that is still there end, and waits for it.
end() {
  [[ -z $1 ]] || { kill "$1" 2>/dev/null && wait "$1" || true; }
}

clean_up() {
  local status=$?
  trap '' INT TERM HUP
  end "$child"
  end "$flood"
  if $culvert lab list | grep -q "^$lab "; then
    echo
    echo "\$ culvert lab down $lab"
    $culvert lab down "$lab" || status=1
  fi
  [[ -z $log ]] || rm -f "$log"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '\n== %s\n' "$*"; }

# run ARG... shows a culvert command and runs it. In the background, so that a signal is not kept waiting.
run() {
  echo "\$ culvert $*"
  $culvert "$@" &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=''
  ((status == 0)) || { echo "demo: 'culvert $*' failed with status $status" >&2; exit "$status"; }
}

say "A network of three ASes in namespaces: AS 2, in the middle, on culvert, the others on the reference router"
run lab up scion3 --name "$lab" --culvert as2

say "From a host in AS 1: the paths to AS 3"
run lab exec "$lab" as1h scion showpaths 1-ff00:0:3 --no-color

say "Three pings to a host in AS 3"
run lab exec "$lab" as1h scion ping 1-ff00:0:3,198.18.103.2 -c 3

say "The routers on the way"
run lab exec "$lab" as1h scion traceroute 1-ff00:0:3,198.18.103.2

say "A flood of SCION packets from AS 1 to AS 3, and what culvert does with it"
log=$(mktemp)
echo "\$ culvert bench run scion3 --lab $lab --rows culvert --rounds 1 --seconds 30 &"
$culvert bench run scion3 --lab "$lab" --rows culvert --rounds 1 --seconds 30 >"$log" 2>&1 &
flood=$!
# What is sent first shows the rate.
until grep -q '^warming up' "$log" || ! kill -0 "$flood" 2>/dev/null; do sleep 0.1; done
if [[ -t 1 ]]; then
  echo "\$ culvert lab exec $lab as2 culvert watch --on br1-ff00_0_2-1"
  # Status 124: the time was up.
  timeout --foreground -s INT 6 $culvert lab exec "$lab" as2 culvert watch --on br1-ff00_0_2-1 || (($? == 124))
fi
run lab exec "$lab" as2 culvert watch --on br1-ff00_0_2-1 -n 2
kill -0 "$flood" 2>/dev/null || wait "$flood" || { cat "$log" >&2; echo "demo: the flood failed" >&2; exit 1; }
echo "\$ kill %1"
end "$flood"
flood=''

say "Packets a second from AS 1 to AS 3, with either router in AS 2, in turns"
run bench run scion3 --lab "$lab"
