// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// TestQueues reads the queues of all cards of the guest, and who serves them.
func TestQueues(t *testing.T) {
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	several := 0
	for _, l := range links {
		name := l.Attrs().Name
		driver := netdev.ReadDriver(name)
		q := netdev.ReadQueues(name)
		if q == nil {
			continue
		}
		t.Logf("%s %s: %v, packets by queue %v", name, driver, q, netdev.QueuePackets(name))
		if driver != "virtio_net" {
			continue
		}
		if len(q.Interrupts) < q.Receive {
			t.Errorf("%s has %d interrupts for %d queues: %+v", name, len(q.Interrupts), q.Receive, q.Interrupts)
		}
		for _, i := range q.Interrupts {
			if len(i.CPUs) == 0 {
				t.Errorf("%s: no CPU serves interrupt %d, %s", name, i.IRQ, i.Name)
			}
		}
		if q.Most > 1 {
			several++
			if got := netdev.QueuePackets(name); len(got) < q.Receive {
				t.Errorf("%s tells packets of the queues %v", name, got)
			}
		}
	}
	if several == 0 {
		t.Error("no card has several queues")
	}
}
