#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs, upgrades, removes and purges the Debian package under a real systemd, in a container of Debian 12 with traffic
# through it, and counts what is lost. The packages are out/deb/culvert_VERSION_amd64.deb and the next one (`make test-deb` builds
# both). It needs mmdebstrap and systemd-container (`scripts/deps.sh deb` installs them); the container's file system is
# downloaded once and kept in out/deb-test.
# All that the test makes is in namespaces of its own (as-root-apart.sh), and goes with them, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly version=${1:?usage: test-deb.sh VERSION NEXT} next=${2:?usage: test-deb.sh VERSION NEXT}
readonly base=out/deb-test/bookworm-curl.tar root=out/deb-test/root

# The hierarchies of control groups that systemd uses: the only one, or of version 1 its own one beside that of version 2.
hierarchies() {
  awk '$3 == "cgroup2" || $3 == "cgroup" && $4 ~ /name=systemd/ { print $2 }' /proc/self/mounts
}

# The outer half, as root: a control group for the container, the file system to begin with, and the inner half.
outer() {
  mkdir -p out/deb-test
  if [[ ! -s $base ]]; then
    echo "downloading a Debian 12 for the container"
    mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,ethtool,libpcap0.8,curl bookworm "$base.new" ||
      { echo "test-deb: mmdebstrap could not make $base: check the network" >&2; exit 1; }
    mv "$base.new" "$base"
  fi
  # Changes the layout that a data plane has noted, for the step over a data plane of another layout. bin/culvert makes the traffic.
  CGO_ENABLED=0 go build -trimpath -o out/deb-test/otherlayout ./internal/testbed/otherlayout
  install -d "$root"
  mapfile -t groups < <(hierarchies)
  trap 'groups_end' EXIT
  trap 'exit 1' INT TERM HUP
  local h
  for h in "${groups[@]}"; do
    group_remove "$h"/culvert-test-deb
    mkdir "$h/culvert-test-deb"
    echo $$ >"$h/culvert-test-deb/cgroup.procs"
  done
  # In the background, so that a signal is not kept waiting.
  scripts/as-root-apart.sh "$0" "$version" "$next" inner &
  apart=$!
  wait "$apart"
}

group_remove() {
  [[ ! -d $1 ]] || find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
}

groups_end() {
  local h tries
  [[ -z ${apart:-} ]] || { kill -KILL "$apart" 2>/dev/null && wait "$apart" 2>/dev/null; } || true # its processes go with it
  for h in "${groups[@]}"; do
    echo $$ >"$h/cgroup.procs"
    for ((tries = 0; tries < 50; tries++)); do
      group_remove "$h/culvert-test-deb"
      [[ -d $h/culvert-test-deb ]] || break
      sleep 0.2
    done
  done
}

# inside COMMAND... runs a command in the container.
inside() {
  timeout 300 nsenter -t "$leader" -a -- env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

fail() {
  echo "FAIL: $*" >&2
  {
    inside journalctl --no-pager -n 40 -u 'culvert*'
    inside systemctl status --no-pager culvert
    inside culvert status
    inside sh -c 'ip -s neigh; ip -s link; for n in 1 2; do ip -n end$n -s link; done'
    tail -n 3 out/deb-test/{sink,blast}.log
  } >&2 || true
  exit 1
}

step() { echo "== $*"; }

# wait_for SECONDS COMMAND... waits until a command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "waited in vain for: $*"
    sleep 0.2
  done
}

# have TEXT COMMAND... fails unless a command succeeds and its output has the text, a pattern of grep -E.
have() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || fail "$*: $out"
  grep -qE -- "$text" <<<"$out" || fail "$*: no '$text' in: $out"
}

shown() { inside systemctl show -P "$2" "$1"; }

boot() {
  # A real sysfs may be written to, as on a host.
  SYSTEMD_NSPAWN_API_VFS_WRITABLE=1 systemd-nspawn --register=no --keep-unit --quiet --directory="$root" --private-network \
    --capability=CAP_BPF,CAP_PERFMON --system-call-filter='bpf perf_event_open' --console=pipe --boot \
    </dev/null >out/deb-test/boot.log 2>&1 &
  nspawn=$!
  wait_for 120 systemd_runs
}

# systemd_runs tells whether the container has booted. Its first process is the one that nspawn has in the end: before that
# there are others for moments.
systemd_runs() {
  leader=$(<"/proc/$nspawn/task/$nspawn/children")
  leader=${leader%% *}
  [[ -n $leader && $(inside systemctl is-system-running) =~ running|degraded ]]
}

# network makes a sender and a receiver beside the container's interfaces eth1 and eth2.
network() {
  inside sh -e -c '
    for n in 1 2; do
      ip netns add end$n
      ip link add eth$n type veth peer name e$n netns end$n
      ip addr add 198.18.$n.1/24 dev eth$n
      ip link set eth$n up
      ip -n end$n addr add 198.18.$n.2/24 dev e$n
      ip -n end$n link set e$n up
      ip netns exec end$n ethtool -K e$n gro on tx off rx off
      ethtool -K eth$n tx off
    done
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding' >/dev/null
}

# veth_losses prints how many packets the queues of the veths have lost: the kernel's losses, before culvert sees a packet or
# after it has sent it.
veth_losses() {
  inside sh -c '
    for dev in eth1 eth2; do ethtool -S $dev; done
    for n in 1 2; do ip netns exec end$n ethtool -S e$n; done' |
    awk -F : '/rx_queue_[0-9]+_drops|xdp_xmit_errors/ { n += $2 } END { print n + 0 }'
}

# load_on sends packets by eth1 to eth2 until load_off.
load_on() {
  lost_before=$(veth_losses)
  : >out/deb-test/sink.log # what the sink before has said is not waited for
  inside ip netns exec end2 /tool bench sink e2 -j >out/deb-test/sink.json 2>out/deb-test/sink.log &
  sink=$!
  wait_for 60 grep -q listening out/deb-test/sink.log
  inside ip netns exec end1 /tool gen blast e1 --stamp --flows 16 --rate 20000 --dst 198.18.2.2 \
    --dst-mac "$(inside cat /sys/class/net/eth1/address)" -j >out/deb-test/blast.json 2>out/deb-test/blast.log &
  blast=$!
  wait_for 60 grep -qE ' [1-9][0-9]* packets, ' out/deb-test/sink.log
}

# number NAME FILE prints the first member of that name of a JSON file.
number() { grep -oE "\"$1\":[0-9]+" "out/deb-test/$2.json" | head -n 1 | cut -d : -f 2; }

# interrupt COMMAND interrupts /tool COMMAND in the container.
interrupt() {
  inside sh -c '
    for p in /proc/[0-9]*; do
      case $(tr "\0" " " <$p/cmdline 2>/dev/null) in "/tool $0 "*) kill -INT ${p#/proc/} ;; esac
    done' "$1"
}

# arrived tells whether the sink has got nothing more for some lines of its log, one a second.
arrived() {
  local last
  mapfile -t last < <(tail -n 3 out/deb-test/sink.log | grep -oE '[0-9]+ packets')
  ((${#last[@]} == 3)) && [[ ${last[0]} == "${last[1]}" && ${last[1]} == "${last[2]}" ]]
}

# load_off WHAT fails if a packet was lost since load_on.
load_off() {
  interrupt gen
  wait "$blast" || true # also if the machine was too busy for the rate
  wait_for 60 arrived
  interrupt bench
  wait "$sink" || true
  local sent received lost
  sent=$(number packets blast) received=$(number packets sink) lost=$(($(veth_losses) - lost_before))
  echo "   $1: $sent packets sent, $received received, $lost lost in the queues of veths"
  ((sent > 0 && received > 0 && received + lost >= sent)) || fail "packets were lost: $1"
}

# files lists what a package may leave behind.
files() {
  inside find / -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/systemd -o -path /packages \) -prune -o \
    ! -name '*-' -print | sort
}

# ask SOCKET PATH [ARGUMENT OF CURL]... sends a request to a socket of the data plane culvert in the container.
ask() {
  local socket=/run/culvert/$1 path=$2
  shift 2
  inside curl -sS --fail-with-body -m 60 --unix-socket "$socket" "http://culvert$path" "$@"
}

main_pid() { shown culvert MainPID; }

inner() {
  trap 'echo "FAIL: $BASH_COMMAND" >&2' ERR
  mount -t tmpfs -o mode=0755 tmpfs "$root"
  tar -C "$root" -xpf "$base"
  [[ ! -d /run/systemd ]] || mount -t tmpfs -o mode=0755 tmpfs /run/systemd
  mkdir "$root/packages"
  cp "out/deb/culvert_${version}_amd64.deb" "out/deb/culvert_${next}_amd64.deb" "$root/packages"
  install bin/culvert "$root/tool"
  install out/deb-test/otherlayout "$root/otherlayout"
  boot
  network
  files >out/deb-test/before
  . scripts/test-deb-steps.sh
}

case ${3:-} in
'') ((EUID == 0)) || exec scripts/as-root.sh "$0" "$version" "$next"
  outer ;;
inner) inner ;;
esac
