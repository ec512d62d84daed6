#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a lab with everything at once for DURATION (1h), with disturbances at random: SEED makes the same again. Another binary, for
# upgrades, is the same sources under the next version. The last page is kept in out/soak/page.txt, the whole output in
# out/soak/soak.log. An interrupt ends it early, with the last page of what was done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly duration=${DURATION:-1h} go=${GO:-go}
export CGO_ENABLED=0
mkdir -p out/soak/next
# A build beside the run does not touch what runs.
cp bin/culvert out/soak/culvert
"$go" build -trimpath -ldflags "-X culvert/internal/version.tag=$(<VERSION)+next" -o out/soak/next/culvert ./cmd/culvert
"$go" build -trimpath -o out/soak/soak ./internal/soak
"$go" test -c -trimpath -tags guest -o out/soak/bonds.test ./internal/drivers
# Ctrl-C is for the program alone, which takes the lab down. Process 1 of its namespace, and tee, do not end by it.
trap : INT
scripts/as-root-apart.sh out/soak/soak -duration "$duration" ${SEED:+-seed "$SEED"} -culvert out/soak/culvert -other out/soak/next/culvert -bonds out/soak/bonds.test -page out/soak/page.txt 2>&1 |
  tee -i out/soak/soak.log
