// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
	"culvert/internal/testbed"
)

// TestMemberBeyondRoom has bonds with a member whose index is beyond the room of the map of interfaces. The error names it, in the same words each
// time, and everything else goes on: the other members are followed, and so are the addresses of all interfaces. Whether an interface
// is a bond is made up, as this kernel may have none: internal/drivers has the same on real ones.
func TestMemberBeyondRoom(t *testing.T) {
	testbed.InNamespace(t)
	names := []string{"v0", "v2", "v4"}
	devices := make(map[string]*net.Interface)
	for n, name := range names {
		devices[name] = testbed.AddVeth(t, name, []string{"v1", "v3", "v5"}[n])
	}
	near, live := testbed.AddVeth(t, "m0", "m1"), testbed.AddVeth(t, "m2", "m3")
	inst := mustAttach(t, names...)
	room := int(inst.maps[bpfobj.PipelineMapPorts].MaxEntries())
	members := map[int][]netdev.BondMember{
		devices["v0"].Index: {{Name: "far0", Index: room, Up: true, Live: true}, {Name: "m0", Index: near.Index, Up: true}},
		devices["v2"].Index: {{Name: "far2", Index: room + 7, Up: true}, {Name: "m2", Index: live.Index, Up: true, Live: true}},
	}
	t.Cleanup(func() { bondOf = netdev.BondOf })
	bondOf = func(index int) (*netdev.Bond, error) {
		if members[index] == nil {
			return nil, nil
		}
		return &netdev.Bond{Name: "a bond", Index: index, Members: members[index]}, nil
	}
	mac := net.HardwareAddr{2, 1, 2, 3, 4, 5}
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetHardwareAddr(l, mac)
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	if err := inst.Refresh(); err != nil {
		t.Errorf("refresh: %v: members are not its own", err)
	}
	for _, name := range names {
		port, _ := inst.Port(devices[name].Index)
		for n, word := range port.Mac {
			if want := bpfobj.Native.Uint16(mac[2*n:]); word != want {
				t.Errorf("%s: word %d of the address is %x, want %x", name, n, word, want)
			}
		}
	}
	var first string
	for range 10 {
		_, err := inst.FollowBonds()
		if err == nil || !strings.Contains(err.Error(), "far0") || !strings.Contains(err.Error(), "far2") || strings.Count(err.Error(), "far") != 2 {
			t.Fatalf("following bonds: %v, want that far0 and far2 have no room", err)
		}
		if first == "" {
			first = err.Error()
		}
		if err.Error() != first {
			t.Errorf("following bonds: %v, and before %s", err, first)
		}
	}
	for member, want := range map[*net.Interface]bpfobj.PipelinePort{
		near: {Dev: uint32(devices["v0"].Index), Spread: portStandby}, live: {Dev: uint32(devices["v2"].Index)},
	} {
		var entry bpfobj.PipelinePort
		if err := inst.maps[bpfobj.PipelineMapPorts].Lookup(uint32(member.Index), &entry); err != nil || entry != want {
			t.Errorf("member %s: %+v (%v), want %+v", member.Name, entry, err, want)
		}
	}
}
