#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the packet tests on Debian's kernels, in guests of an emulator: that needs no root. KERNELS picks
# lines of kernels, as in KERNELS=6.1; an argument picks suites, of those below. ARCH=arm64 has guests with that. The whole output
# is kept in out/test-kernels.log, or out/test-kernels-arm64.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
readonly kernels=${KERNELS:-6.1,6.12} host=$(go env GOHOSTARCH)
readonly arch=${ARCH:-$host}
readonly old=5.10
export GOARCH=$arch

# Packages, and what to run of each. An emulator takes some ten times as long as the machine: loading a
# program takes seconds. So there is one test of each kind, and fewer packets.
declare -A suites=(
  [datapath]='-test.run=^(TestAttachAndDetach|TestModeStays|TestLayouts|TestLossesAreCounted|TestWorkersFinishChecksums|TestWorkersInGenericMode|TestFronts.*)$'
  [filterplane]='-test.run=^(TestFilterEdit|TestFilterAdopted|TestFilterTester|TestFilterSets|TestFilterSet(LookUp|Times)|TestFilterLookups(BesideAll)?|TestFilterStraight(Effort)?|TestFilterOneShape|TestFilterSyn.*|TestFilterDeliver.*|TestFilterPriorityTags|TestPutFilterServices|TestFilterLimit(Rate|Keys|Eviction|BurstOfAll|Races)|TestFilterTop(Bounds|Keys))$ -lookups=6'
  [decapplane]='-test.run=^TestDecap(Kinds|ECN.*|SeveralBuffers|Passes|Sets|CutAnywhere|Mutated|Attach|GenericAndHost|Refuses|AllOrNone|InterfacesChange)$'
  [lbplane]='-test.run=^(TestGC(Frees|BeforeTimesWrap|UnderLoad)|Test(KnownFlow|Encapsulations|Headers|Echo|TooBig|ICMPErrors|Fragments|QUIC|FlowStays|VLAN(s|Devices)|Forged(SYN|End|Fragment|ID)|Migrate(Locked|Busy)|SourcePort)|TestUnclaimed(IsAnswered|IsDropped|IsTheKernels|OnVLANs)|TestProbeMarksOfOthers)$'
  [scionplane]='-test.run=^(TestAdopt|TestKeys|TestReplaceKey|TestMACIsTheReferences|TestOneWrongBitIsRefused|TestCacheBelongsToTheKey|TestKeySchedule|TestLimitedPunts|TestLimitsAreNotShared|TestBFD.*|TestLinkAccept|TestSocketGuard.*|TestFramesOfSeveralBuffers)$'
  [routeplane]='-test.run=^(TestRouteB.*|TestChoice(Forgotten|NotRemembered|sInUse)|TestRouteTrims|TestRouteLimitsByInterface|TestLBWithAllStages)$'
  [example]='-test.run=. -packets=600'
  [scionjudge]='-test.run=^(TestXDPAgainstReference|TestXDPLinkDown|TestGeneratedFileIsForwarded)$ -packets=4000'
  [load]='-test.run=^(TestAddresses|TestCost[RUTC].*|TestGeneratorSink.*|TestSink.*|TestGeneratorRefuses.*|TestOrder.*|TestGeneratorStamps.*)$'
  [peer]='-test.run=^(TestForward|TestGeneratorRefuses.*)$'
  [routejudge]='-test.run=^(TestVLANs|TestVRF)$'
  [cbpf]='-test.run=^(TestExpressions|TestTruncated|TestSeveralBuffers|TestRandomPrograms|TestCorners|TestShort|TestManyOffsets)$ -frames=100'
  [netfilter]='-test.run=^(TestIPVS|TestIPVSOfTheKernel|TestNetfilterProgramOfTheKernel)$'
  [pipelinefuzz]='-test.run=^TestVerifierEffort$'
  [nexthop]='-test.run=^(TestOnLink.*|TestGatewayAndRouteMTU|TestIPv4ViaIPv6Gateway|TestPeerMACChange|TestRouteChange|TestNeighborDeleted|TestVLAN.*|TestDevices.*|TestSource)$'
  [sflowplane]='-test.run=^TestSampling$'
  [sflowstage]='-test.run=^(TestAnsweredSYN|TestTaggedDrops|TestWorkersLoad|TestNextHops|TestSamples|TestCounters|TestCollectorGone|TestUnread|TestDropsLimit|TestReload|TestReloadOfOthers|TestTable)$'
  [captureplane]='-test.run=^(TestCapture(Frames|Bytes|Selects|Sample|Twice|Killed|OfWhatGoes|EndsOnce)|TestLockLookedAt)$/^neither'
)

all='datapath filterplane decapplane lbplane scionplane routeplane example scionjudge load peer cbpf netfilter nexthop pipelinefuzz routejudge sflowplane sflowstage captureplane'
as=
if [[ $arch != "$host" ]]; then
  # A foreign processor takes five times as long again. The judges see fewer packets, but of all kinds.
  as=-$arch
  all='bpfobj datapath filterplane decapplane lbplane scionplane routeplane scionjudge cbpf nexthop routejudge'
  suites[bpfobj]='-test.run=^TestLitmus'
  suites[routejudge]='-test.run=^(TestVLANs|TestVRF|TestHosts|TestJudge|TestReasons)$'
  suites[scionjudge]=${suites[scionjudge]/-packets=4000/-packets=1000}
  suites[cbpf]=${suites[cbpf]/-frames=100/-frames=20}
fi
readonly log=out/test-kernels$as.log

mkdir -p out/kernels
totals=$PWD/out/test-totals-kernels$as
echo 0 0 0 >"$totals"
status=0
commands=()
read -ra names <<<"${*:-$all}"
for name in "${names[@]}"; do
  [[ -v suites[$name] ]] || {
    echo "there is no suite $name: there are ${!suites[*]}" >&2
    exit 2
  }
  dir=$(find internal -type d -name "$name")
  echo "building the tests of $dir"
  tags=guest
  [[ $name != example ]] || tags+=,example # the stage that only its own tests have
  go test -c -trimpath -tags "$tags" -o "out/kernels/$name$as.test" "./$dir"
  commands+=("out/kernels/$name$as.test -test.v -test.count=1 ${suites[$name]}")
done
bin/culvert guest test --arch "$arch" --program ip,ipvsadm --kernel "$kernels" "${commands[@]}" | tee "$log" |
  awk -v totals="$totals" -f scripts/tally.awk || status=1
# A kernel that is too old is refused.
if (($# == 0)); then
  go test -c -trimpath -tags guest -o "out/kernels/guest$as.test" ./internal/guest
  bin/culvert guest test --arch "$arch" --kernel "$old" "out/kernels/guest$as.test -test.v -test.run=^TestOldKernelIsRefused\$" |
    tee -a "$log" | awk -v totals="$totals" -f scripts/tally.awk || status=1
fi
read -r passed _ skipped <"$totals"
if ((skipped > 0 || passed == 0)); then
  echo "skipped tests count as failed, and so does a run without any"
  status=1
fi
((status == 0)) || echo "the whole output is in $log"
awk -v totals="$totals" -v last=1 -f scripts/tally.awk </dev/null
exit $status
