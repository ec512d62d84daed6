// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// beyondRoom is an index for which the map of interfaces has no room.
const beyondRoom = 1 << 20

// bondRoom has a device with a very high index join a bond. The log says once that it is not followed, and when that is over. The process
// follows everything else meanwhile, among it the bond's own address.
func bondRoom(t *testing.T, b *bed) {
	in, out := b.pair(t, "veth/backup")
	m := &trial{T: t, bed: b, driver: in.driver, in: in, out: out, mode: "native"}
	for _, port := range []*port{in, out} {
		port.prefer(t, port.bond.near.members[0]) // the ends may use different members
	}
	m.ready(in, out)
	p, end := m.serve()
	defer end()
	b.here.Must(t, func() error {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wroom", Index: beyondRoom}, PeerName: "wroomf"}
		return errors.Join(netlink.LinkAdd(l), in.bond.near.join(l.Name))
	})
	const said = "the members of bonds could not be followed"
	p.logs(said)
	before := in.mac
	setMAC := func(mac net.HardwareAddr) {
		m.mustLink(in, func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac) })
		in.mac = mac
	}
	setMAC(net.HardwareAddr{2, 1, 2, 3, 4, 5})
	defer setMAC(before)
	if !wait(func() bool { return m.allForwarded(16) }) {
		t.Errorf("the data plane does not forward what comes in by the new address of %s", in.name)
	}
	time.Sleep(3 * time.Second) // the process looks each second
	p.logsOnce(said)
	if strings.Contains(p.log.String(), "the fast path does not follow the host") {
		t.Errorf("a member of a bond stops what is followed besides")
	}
	b.here.Must(t, func() error {
		l, err := netlink.LinkByName("wroom")
		return errors.Join(err, netlink.LinkDel(l))
	})
	p.logs("all members of bonds are followed")
}
