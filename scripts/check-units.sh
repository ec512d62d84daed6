#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when culvert.service and culvert@.service differ in more than the name of the configuration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../dist"

# settings FILE prints a unit with the name of culvert.service's configuration, without comments.
settings() { sed -e '/^#/d' -e 's/ (%i)$//' -e 's,%i,culvert,' "$1"; }
diff <(settings culvert.service) <(settings culvert@.service) ||
  { echo "dist/culvert.service and dist/culvert@.service differ: change both" >&2; exit 1; }
