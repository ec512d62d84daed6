#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests with bonds and VLAN devices on Debian's kernels, in guests of an emulator, over veths and over emulated cards. It needs no
# root. KERNELS picks lines of kernels, as in KERNELS=6.1, RUN picks tests. The whole output is kept in out/test-bonds.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
readonly kernels=${KERNELS:-6.1,6.12} run=${RUN:-^Test(Bonds|VLANNames)$}
# Two wires for each bond, and two bonds for each mode.
readonly wires=('virtio_net' 'virtio_net' 'virtio_net' 'virtio_net' 'virtio_net' 'virtio_net' 'virtio_net' 'virtio_net')

mkdir -p out/kernels
totals=$PWD/out/test-totals-bonds
echo 0 0 0 >"$totals"
status=0
go test -c -trimpath -tags guest -o out/kernels/bonds.test ./internal/drivers
joined=$(
  IFS=+
  echo "${wires[*]}"
)
bin/culvert guest test "${wires[@]/#/--wire=}" --program ip,ethtool --kernel "$kernels" \
  "out/kernels/bonds.test -test.v -test.count=1 -test.run=$run -wires=$joined" | tee out/test-bonds.log |
  awk -v totals="$totals" -f scripts/tally.awk || status=1
read -r passed _ skipped <"$totals"
if ((skipped > 0 || passed == 0)); then
  echo "skipped tests count as failed, and so does a run without any"
  status=1
fi
((status == 0)) || echo "the whole output is in out/test-bonds.log"
awk -v totals="$totals" -v last=1 -f scripts/tally.awk </dev/null
exit $status
