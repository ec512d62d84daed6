#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build, the tests and the demo need on Debian 12, or with the argument `guest` what
# runs culvert in QEMU, with `arm64` the emulator of that, with `deb` what tests the Debian package, with `browser` what tests the page to look at. Does nothing when nothing is missing; asks for root through sudo only when
# something is.
set -euo pipefail

# The version that go.mod asks for. An older go (1.21 or later) fetches that toolchain by itself,
# unless GOTOOLCHAIN forbids it.
readonly go_oldest=1.21

# Packages, and the command or file that shows a package's content to be there on a host without dpkg.
declare -A wanted=(
  [clang-19]=clang-19                    # compiles bpf/
  [llvm-19]=llvm-strip-19                # strips the objects
  [clang-format-19]=clang-format-19      # lint
  [libbpf-dev]=/usr/include/bpf/bpf_helpers.h
  [gcc]=gcc                              # peers: go-sqlite3 in SCION's control service
  [libc6-dev]=/usr/include/stdio.h
  [iproute2]=ip
  [ethtool]=ethtool
  [nftables]=nft                         # tests: rules that the IP router would go past
  [iptables]=iptables-legacy             # the same, of both kinds
  [openssl]=openssl                      # tests: certificates, as pages make them
  [ipset]=ipset                          # a peer of the bench's filter
  [xdp-tools]=xdp-filter                 # the same
  [haproxy]=haproxy                      # a peer of the bench's load balancer
  [tcpreplay]=tcpreplay                  # a second generator for the bench
  [tcpdump]=tcpdump
  [tshark]=tshark                        # tests: a second reader of captures
  [libpcap0.8]=''
  [bird2]=bird                           # lab bgp
  [dnsmasq-base]=dnsmasq                 # tests: sources of backends
  [stayrtr]=stayrtr                      # lab bgp
  [iputils-ping]=ping                    # lab bgp
  [traceroute]=traceroute                # lab bgp
  [prometheus]=prometheus                # tests: rules, dashboards
  [ca-certificates]=/etc/ssl/certs/ca-certificates.crt
  [git]=git
  [make]=make
)

# Services that come with those packages and start with their installation. The lab runs the programs in its own
# namespaces: on the host nothing of them is to run, now or after a boot.
declare -A services=([bird2]=bird [stayrtr]=stayrtr [haproxy]=haproxy [ipvsadm]=ipvsadm [prometheus]=prometheus)

# Kernels are downloaded as Debian packages, with the keys and tools of a Debian system.
declare -A wanted_by_guest=(
  [qemu-system-x86]=qemu-system-x86_64
  [xz-utils]=xz
  [ipvsadm]=ipvsadm                      # sets up peers of the bench's load balancer
  [nftables]=nft                         # the same
  [debian-archive-keyring]=/usr/share/keyrings/debian-archive-keyring.gpg
  [ca-certificates]=/etc/ssl/certs/ca-certificates.crt
)

# Guests with arm64 besides.
declare -A wanted_by_arm64=(
  [qemu-system-arm]=qemu-system-aarch64
)

# The Debian package is tested in a container.
declare -A wanted_by_deb=(
  [mmdebstrap]=mmdebstrap
  [systemd-container]=systemd-nspawn
)

# The page is tested in a browser.
declare -A wanted_by_browser=(
  [chromium]=chromium
  [fonts-dejavu-core]=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
)

die() {
  echo "deps: $*" >&2
  exit 1
}

installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# present says whether a package's content is there, whoever installed it.
present() {
  local probe=${wanted[$1]}
  case $probe in
  '') return 0 ;;
  /*) [[ -e $probe ]] ;;
  *) command -v "$probe" >/dev/null ;;
  esac
}

# quietly RUN... runs a command while packages may not start services. That is what /usr/sbin/policy-rc.d says, with
# and without systemd; one that the host has stays as it is.
quietly() {
  local policy=/usr/sbin/policy-rc.d status=0
  if [[ -e $policy ]]; then
    "$@"
    return
  fi
  trap '"${root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee "$policy" >/dev/null
  "${root[@]}" chmod 755 "$policy"
  "$@" || status=$?
  "${root[@]}" rm -f "$policy"
  trap - EXIT
  return $status
}

# keep_off PACKAGE... has the services of what was just installed neither run nor start with the next boot.
keep_off() {
  local p name
  for p in "$@"; do
    name=${services[$p]:-}
    [[ -n $name ]] || continue
    if command -v systemctl >/dev/null; then
      "${root[@]}" systemctl -q disable "$name.service" >/dev/null 2>&1 || true
      [[ ! -d /run/systemd/system ]] || "${root[@]}" systemctl -q stop "$name.service" >/dev/null 2>&1 || true
    fi
    if [[ -e /etc/init.d/$name ]]; then
      "${root[@]}" update-rc.d "$name" disable >/dev/null 2>&1 || true
    fi
  done
}

check_go() {
  command -v go >/dev/null ||
    die "go is not on PATH: install Go from https://go.dev/dl (any version from $go_oldest on) and run this again"
  local have
  have=$(go env GOVERSION 2>/dev/null) ||
    die "'go env' failed here: $(go env GOVERSION 2>&1 | head -n 1)"
  have=${have#go}
  [[ $(printf '%s\n' "$go_oldest" "${have%% *}" | sort -V | head -n 1) == "$go_oldest" ]] ||
    die "go $have is too old: install Go $go_oldest or later from https://go.dev/dl"
}

check_elsewhere() {
  local missing=() p
  for p in "${!wanted[@]}"; do
    present "$p" || missing+=("$p (${wanted[$p]})")
  done
  ((${#missing[@]} == 0)) && return
  printf 'deps: not a Debian system, cannot install these by myself:\n' >&2
  printf '  %s\n' "${missing[@]}" | sort >&2
  die "install what these Debian packages hold, then run this again"
}

main() {
  local p
  [[ $(uname -s) == Linux ]] || die "culvert needs Linux, this is $(uname -s)"
  case ${1:-} in
  '') ;;
  guest)
    wanted=()
    for p in "${!wanted_by_guest[@]}"; do wanted[$p]=${wanted_by_guest[$p]}; done
    ;;
  arm64)
    wanted=()
    for p in "${!wanted_by_arm64[@]}"; do wanted[$p]=${wanted_by_arm64[$p]}; done
    ;;
  deb)
    wanted=()
    for p in "${!wanted_by_deb[@]}"; do wanted[$p]=${wanted_by_deb[$p]}; done
    ;;
  browser)
    wanted=()
    for p in "${!wanted_by_browser[@]}"; do wanted[$p]=${wanted_by_browser[$p]}; done
    ;;
  *) die "usage: deps.sh [guest|arm64|deb|browser]" ;;
  esac
  check_go
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    check_elsewhere
    return
  fi

  local missing=()
  for p in "${!wanted[@]}"; do
    installed "$p" || missing+=("$p")
  done
  ((${#missing[@]} == 0)) && return
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort)

  root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "not root and no sudo: run as root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  echo "deps: installing ${missing[*]}"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
  "${apt[@]}" update >/dev/null || die "apt-get update failed: check the network and /etc/apt/sources.list"
  quietly "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install ${missing[*]} (clang-19 is in Debian 12's main archive and its updates)"
  keep_off "${missing[@]}"
}

main "$@"
