#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command as root: directly when we are, else through sudo with this user's PATH, where Go is.
[ "$(id -u)" -eq 0 ] && exec "$@"
command -v sudo >/dev/null || {
  echo "needs root and there is no sudo: run as root: $*" >&2
  exit 1
}
exec sudo -E env "PATH=$PATH" "$@"
