// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"culvert/internal/host/netdev"
)

func TestBondCheck(t *testing.T) {
	bond := func(mode, policy string, members ...netdev.BondMember) *netdev.Bond {
		return &netdev.Bond{Name: "bond0", Index: 7, Mode: mode, HashPolicy: policy, Members: members}
	}
	live := netdev.BondMember{Name: "eth1", Index: 1, Up: true, Live: true}
	standby := netdev.BondMember{Name: "eth2", Index: 2, Up: true}
	down := netdev.BondMember{Name: "eth3", Index: 3}
	tests := map[string]struct {
		bond    *netdev.Bond
		want    want
		generic bool
	}{
		"both live":            {bond("802.3ad", "layer3+4", live, standby), want{OK, "802.3ad of eth1 live, eth2 standby", ""}, false},
		"one down":             {bond("active-backup", "layer2", live, down), want{Warn, "eth3 down", "ip -details link show dev eth3"}, false},
		"one alone":            {bond("active-backup", "layer2", live), want{Warn, "there is no other", "ip link set dev IFACE master bond0"}, false},
		"none live":            {bond("802.3ad", "layer2", standby, down), want{Fail, "none is live", ""}, false},
		"no members":           {bond("802.3ad", "layer2"), want{Fail, "it has no members", "ip link set dev IFACE master bond0"}, false},
		"mode":                 {bond("broadcast", "layer2"), want{Fail, "and this is broadcast", "ip link set dev bond0 down && ip link set dev bond0 type bond mode active-backup && ip link set dev bond0 up"}, false},
		"hash policy":          {bond("802.3ad", "vlan+srcmac", live, standby), want{Fail, "vlan+srcmac", "ip link set dev bond0 type bond xmit_hash_policy layer2+3"}, false},
		"policy unused":        {bond("active-backup", "vlan+srcmac", live, standby), want{OK, "active-backup of", ""}, false},
		"mode, generic":        {bond("balance-alb", "layer2", live, standby), want{OK, "balance-alb of", ""}, true},
		"hash policy, generic": {bond("802.3ad", "vlan+srcmac", live, standby), want{OK, "802.3ad of", ""}, true},
		"none live, generic":   {bond("balance-alb", "layer2", standby, down), want{Fail, "none is live", ""}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { tt.want.check(t, checkBond(tt.bond, tt.generic)) })
	}
}

// TestMemberByItself has a member of a bond that is examined as an interface.
func TestMemberByItself(t *testing.T) {
	ours := &program{id: 5, name: "rx", mode: "xdp", link: 9, pin: "/sys/fs/bpf/culvert/1/br/link-bond0"}
	for name, tt := range map[string]struct {
		named bool
		above *program
		want  want
	}{
		"alone":             {false, nil, want{Warn, "only the filter works on it", "culvert doctor -i bond0"}},
		"culvert above":     {false, ours, want{Warn, "only the filter works on it", "culvert doctor -i bond0"}},
		"beside its bond":   {true, ours, want{Fail, "an attach to both is refused", "take eth1 or bond0 out of interfaces in the file"}},
		"below another one": {false, &program{id: 7, name: "drop", mode: "xdp"}, want{Fail, "it is a member of bond0, which carries the XDP program drop (xdp, program 7)", "ip link set dev bond0 xdp off"}},
	} {
		f := memberByItself("eth1", "bond0", tt.named, tt.above)
		t.Run(name, func(t *testing.T) { tt.want.check(t, &f) })
	}
}
