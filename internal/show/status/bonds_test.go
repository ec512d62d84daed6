// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/stats"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// TestMembersAreShown has a data plane that knows none of the members of a bond: one has no room, which no process can change while it
// runs, and the other has been followed by none. The bond is made up, as this kernel may have none.
func TestMembersAreShown(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst, err := datapath.Attach(datapath.Options{Name: "r", Interfaces: []string{"v0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
		inst.Close()
	})
	bond := &netdev.Bond{Name: "v0", Index: v0.Index}
	far := describeMember(inst, bond, netdev.BondMember{Name: "far", Index: 1 << 30, Up: true, Live: true})
	near := describeMember(inst, bond, netdev.BondMember{Name: "near", Index: v0.Index + 1, Up: true, Live: true})
	if far.Unknown || !far.NoRoom || !near.Unknown || near.NoRoom {
		t.Errorf("%+v, %+v", far, near)
	}
	with := Interface{Members: []Member{{Name: "e1", Queues: &netdev.Queues{Receive: 2, RSS: []float64{50, 50}}}, {Name: "e2"}}}
	if got := with.memberQueues(); len(got) != 1 || got[0] != "    queues of e1: 2 receive, hashes spread 50 50 %" {
		t.Errorf("queues %q", got)
	}
	const room, changed = "NO ROOM for far: ", "no process has followed"
	for _, tt := range []struct {
		members       []Member
		room, changed bool
	}{
		{[]Member{{Name: "e1", State: "live"}}, false, false},
		{[]Member{{Name: "e1", State: "live"}, far}, true, false},
		{[]Member{near}, false, true},
		{[]Member{near, far}, true, true},
	} {
		r := Report{Routers: []Router{{ID: "r", Interfaces: []Interface{{Port: stats.Port{Interface: "bond0", Attached: true}, Members: tt.members}}}}}
		var text strings.Builder
		if err := r.WriteText(&text, time.Now(), false); err != nil || strings.Contains(text.String(), room) != tt.room || strings.Contains(text.String(), changed) != tt.changed {
			t.Errorf("%+v, %v:\n%s", tt.members, err, text.String())
		}
	}
}
