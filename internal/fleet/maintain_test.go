// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/cluster"
)

// TestMaintain has nodes that announce something and nodes that do not. Only of the first is it said that they are safe to stop, and the last one
// of a role stays in service.
func TestMaintain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("lb1:lb", "lb2:lb", "f1:filter", "f2:filter")
	for _, name := range []string{"lb1", "lb2"} {
		b.with(name, func(n *fakeNode) { n.maintained = cluster.MaintainSafe })
	}
	for _, name := range []string{"f1", "f2"} {
		b.with(name, func(n *fakeNode) {
			n.maintained, n.Interfaces = cluster.MaintainNothing, []cluster.InterfaceState{{Name: "eth0", RX: 22}}
		})
	}
	maintain := func(name string, force bool) (string, error) {
		b.out.Reset()
		err := b.Maintain(t.Context(), name, "", force, b.say)
		return b.out.String(), err
	}
	if said, err := maintain("lb1", false); err != nil || !strings.Contains(said, "lb1 is safe to stop") || !strings.Contains(said, "has it announce again") {
		t.Errorf("error %v, said %s", err, said)
	}
	said, err := maintain("f1", false)
	if err != nil || strings.Contains(said, "safe") || strings.Contains(said, "announce again") ||
		!strings.Contains(said, "f1 is in maintenance: nothing is announced by this node, so nothing moves away; 22 packets a second come") {
		t.Errorf("error %v, said %s", err, said)
	}
	for name, role := range map[string]string{"lb2": "lb", "f2": "filter"} {
		if _, err := maintain(name, false); err == nil || !strings.Contains(err.Error(), "no other node with the role "+role+" is in service") {
			t.Errorf("the last one: %v", err)
		}
	}
	if said, err := maintain("f2", true); err != nil || !strings.Contains(said, "f2 is in maintenance") {
		t.Errorf("error %v, said %s", err, said)
	}
	if said, err := maintain("f2", false); err != nil || !strings.Contains(said, "f2 is in maintenance") { // once more, to wait for it
		t.Errorf("error %v, said %s", err, said)
	}
	if err := b.ResumeNode(t.Context(), "f2", b.say); err != nil {
		t.Error(err)
	}
}

// TestResume has nodes announce again a moment after their maintenance, or not at all. A node is back in service only once it announces what it
// announced before, also if it was asked twice to withdraw.
func TestResume(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.announceWait = 200 * time.Millisecond
	b.add("lb1", "lb2")
	vips := []string{"2001:db8:80::80", "203.0.113.80"}
	for _, name := range []string{"lb1", "lb2"} {
		b.with(name, func(n *fakeNode) { n.maintained, n.Announced = cluster.MaintainSafe, vips })
	}
	maintained := func(name string) {
		t.Helper()
		for range 2 {
			if err := b.Maintain(t.Context(), name, "", false, b.say); err != nil {
				t.Fatal(err)
			}
		}
		b.out.Reset()
	}
	maintained("lb1")
	b.announceWait = time.Minute
	if err := b.ResumeNode(t.Context(), "lb1", b.say); err != nil || !strings.Contains(b.out.String(), "lb1 is back in service, and announces 2001:db8:80::80 203.0.113.80") {
		t.Errorf("error %v, said %s", err, b.out)
	}
	states, err := b.States(t.Context())
	if err != nil || !slices.Equal(states["lb1"].Announced, vips) {
		t.Errorf("it is said to be back, and announces %v, error %v", states["lb1"].Announced, err)
	}
	maintained("lb2")
	b.announceWait = 200 * time.Millisecond
	b.with("lb2", func(n *fakeNode) { n.late = true })
	err = b.ResumeNode(t.Context(), "lb2", b.say)
	if err == nil || !strings.Contains(err.Error(), "does not announce 2001:db8:80::80, 203.0.113.80") || strings.Contains(b.out.String(), "back in service") {
		t.Errorf("error %v, said %s", err, b.out)
	}
}
