// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/host/pins"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestNoEthernet attaches to a tun device, whose packets have no Ethernet header: at once, and as the device that it waited for.
func TestNoEthernet(t *testing.T) {
	testbed.InNamespace(t)
	options := datapath.Options{
		Name: "br1", Interfaces: []string{"tun0"}, Parts: scionbed.Parts(scionbed.Config(1)), Generic: true, Wait: true,
	}
	inst, err := datapath.Attach(options)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN, NonPersist: true, Queues: 1}
	if err := netlink.LinkAdd(tun); err != nil {
		t.Fatal(err)
	}
	for _, f := range tun.Fds {
		defer f.Close()
	}
	refused := func(who string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "interface tun0 carries packets without an Ethernet header (link type none)") {
			t.Errorf("%s: %v", who, err)
		}
	}
	refused("AttachPort", inst.AttachPort(pins.Unattached{Interface: "tun0", Why: pins.Gone}))
	options.Name = "br2"
	_, err = datapath.Attach(options)
	refused("Attach", err)
	problems, _ := datapath.Check(options, nil)
	if len(problems) != 1 || problems[0].Interface != "tun0" {
		t.Fatalf("Check has %v", problems)
	}
	refused("Check", problems[0].Err)
	if id := testbed.XDPProgram(t, "tun0"); id != 0 {
		t.Errorf("program %d is attached", id)
	}
}
