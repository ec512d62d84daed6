#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests with emulated network cards on Debian's kernels, in guests of an emulator. Cards with several queues are
# taps of a network namespace of the emulator's own, which needs root. KERNELS picks lines of kernels, as in KERNELS=6.1, RUN picks
# tests. UPDATE=1 takes what they find for right, and writes it to internal/drivers/results.json and docs/drivers.md. The whole output is kept in out/test-drivers.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
readonly kernels=${KERNELS:-6.1,6.12} run=${RUN:-^Test(CardsComeBack|Drivers|Faults)$}
# Two cards of each kind: packets go from the one to the other.
readonly wires=('virtio_net' 'virtio_net' 'virtio_net*4' 'virtio_net*4' 'vmxnet3' 'vmxnet3' 'e1000e' 'e1000e')

mkdir -p out/kernels
totals=$PWD/out/test-totals-drivers
echo 0 0 0 >"$totals"
status=0
go test -c -trimpath -tags guest -o out/kernels/drivers.test ./internal/drivers
joined=$(
  IFS=+
  echo "${wires[*]}"
)
scripts/as-root.sh bin/culvert guest test "${wires[@]/#/--wire=}" --program ip,ethtool --kernel "$kernels" \
  "out/kernels/drivers.test -test.v -test.count=1 -test.run=$run -wires=$joined${UPDATE:+ -update}" | tee out/test-drivers.log |
  awk -v totals="$totals" -f scripts/tally.awk || status=1
if [[ -n ${UPDATE:-} ]]; then
  go test -trimpath -count=1 ./internal/drivers -update -from "$PWD/out/test-drivers.log"
fi
sed -n 's/^fault: /  /p' out/test-drivers.log # what doctor and attach say of each fault
read -r passed _ skipped <"$totals"
if ((skipped > 0 || passed == 0)); then
  echo "skipped tests count as failed, and so does a run without any"
  status=1
fi
((status == 0)) || echo "the whole output is in out/test-drivers.log"
awk -v totals="$totals" -v last=1 -f scripts/tally.awk </dev/null
exit $status
