#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command as root with processes and mounts of its own: what it pins, what it names and what it keeps below
# /run is nobody else's, also to culvert, which goes by the mounts of process 1. So tests of several packages run
# side by side, and beside a culvert in use. All that the command leaves behind goes with it.
exec "$(dirname "$0")/as-root.sh" unshare --mount --pid --fork --kill-child --mount-proc sh -c '
  set -e
  while mountpoint -q /sys/fs/bpf; do umount /sys/fs/bpf; done
  mount -t bpf -o mode=0700 bpf /sys/fs/bpf
  for dir in netns culvert; do
    while mountpoint -q "/run/$dir"; do umount -l "/run/$dir"; done
    mkdir -p "/run/$dir"
    mount -t tmpfs -o mode=0755 tmpfs "/run/$dir"
  done
  mkdir -m 0700 /run/culvert/state
  export STATE_DIRECTORY=/run/culvert/state # in the place of /var/lib/culvert, as systemd names it
  # Not in the place of this shell: process 1 is not as others are.
  status=0
  "$@" || status=$?
  exit "$status"' sh "$@"
