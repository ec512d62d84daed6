#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lays out below DIR/usr what a package or an administrator installs: `cp -r DIR/usr /`. BINARY is the binary to install;
# bin/culvert, which this machine can run, writes man pages and completions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly dir=${1:?usage: dist.sh DIR}
readonly share=$dir/usr/share

rm -rf "$dir"
install -D -m 755 "${BINARY:-bin/culvert}" "$dir/usr/bin/culvert"
install -D -m 644 -t "$dir/usr/lib/systemd/system" dist/*.service
install -D -m 644 dist/culvert.sysusers "$dir/usr/lib/sysusers.d/culvert.conf"
scripts/dist-docs.sh "$share/doc/culvert"
install -D -m 644 -t "$share/culvert/grafana" dist/grafana/*.json
install -D -m 644 -t "$share/culvert/prometheus" dist/prometheus/*.rules.yml dist/prometheus/federate.yml

bin/culvert man "$share/man"
gzip -9 -n "$share"/man/man[578]/*

# complete SHELL FILE
complete() {
  mkdir -p "$(dirname "$2")"
  bin/culvert completion "$1" >"$2"
}
complete bash "$share/bash-completion/completions/culvert"
complete zsh "$share/zsh/vendor-completions/_culvert"
complete fish "$share/fish/vendor_completions.d/culvert.fish"

echo "$dir:"
(cd "$dir" && find usr -type f | sort)
