// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"fmt"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// rxvlanRow has the card take VLAN tags off. No stage alone may be attached then, with the filter as the exception of a card without VLAN
// devices.
func rxvlanRow(m *trial) string {
	m.detach(m.T)
	if _, err := m.run("ethtool", "-K", m.in.name, "rxvlan", "on"); err != nil {
		return "no such offload"
	}
	defer m.must(m.T, "ethtool", "-K", m.in.name, "rxvlan", "off")
	mend := "ethtool -K " + m.in.name + " rxvlan off"
	m.refused(m.T, config(m.mode, m.in, m.out), mend)
	m.refusedFile(m.T, filepath.Join(m.scionFiles(), "culvert.toml"), mend)
	head := fmt.Sprintf("interfaces = [%q]\nmode = %q\n", m.in.name, m.mode)
	m.refused(m.T, head+"[route]\nblocks4 = 64\nblocks6 = 1024\n", mend)
	m.refused(m.T, head+"[lb]\nflows = 4096\nvips = 16\nbackends = 64\n", mend)
	filter := head + "[filter]\n[[filter.rule]]\nname = \"no\"\naction = \"drop\"\nexpression = \"udp dst port 9\"\n"
	m.refused(m.T, filter, mend)

	m.here.Must(m.T, func() error {
		l, err := netlink.LinkByName(m.in.name + ".7")
		if err == nil {
			err = netlink.LinkDel(l)
		}
		return err
	})
	m.attach(m.T, filter)
	m.detach(m.T)
	m.here.Must(m.T, func() error { return m.in.upVLAN(7) })
	if command := m.doctor(m.in, "vlan"); command != mend {
		m.Errorf("doctor says %q, want %q", command, mend)
	}
	return "refused"
}
