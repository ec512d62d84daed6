// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// taggedFar is the far end of a VLAN device: it puts a tag on what it sends, and takes off that of what it receives.
type taggedFar struct {
	far
	id uint16
}

func (f taggedFar) Send(frame []byte) error {
	tagged := slices.Concat(frame[:12], []byte{0x81, 0x00}, binary.BigEndian.AppendUint16(nil, f.id), frame[12:])
	return f.far.Send(tagged)
}

// Receive gives frames without the tag no length.
func (f taggedFar) Receive(buffer []byte) (int, error) {
	n, err := f.far.Receive(buffer)
	if err != nil || tag(buffer[:n]) != f.id {
		return 0, err
	}
	copy(buffer[12:], buffer[16:n])
	return n - 4, nil
}

// vlanID is the VLAN of the devices that are named in configurations.
const vlanID = 100

// addNamedVLAN makes a port of a VLAN device, over a pair of veths or over the bond of another port.
func (b *bed) addNamedVLAN(t *testing.T, driver string, number int, below string) *port {
	t.Helper()
	if below == "" {
		below = b.veth(t)
		b.here.Must(t, func() error {
			l, err := netlink.LinkByName(below)
			return errors.Join(err, netlink.LinkSetUp(l))
		})
	}
	p := &port{driver: driver, number: number, name: fmt.Sprintf("%s.%d", below, vlanID)}
	b.here.Must(t, func() error {
		l, err := netlink.LinkByName(below)
		if err != nil {
			return err
		}
		p.mac = l.Attrs().HardwareAddr
		return netlink.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: p.name, ParentIndex: l.Attrs().Index}, VlanId: vlanID})
	})
	b.there.Must(t, func() error {
		l, err := netlink.LinkByName(below)
		if err != nil {
			return err
		}
		f, err := openFar(l)
		p.far = taggedFar{f, vlanID}
		return err
	})
	b.add(t, p)
	return p
}

// TestVLANNames has VLAN devices as interfaces of a configuration. Native mode is refused with a line that says what to name, since the
// kernel runs no XDP on them but in generic mode, in which all stages work on them.
func TestVLANNames(t *testing.T) {
	b := &bed{here: testbed.NewNamespace(t), ports: make(map[string][]*port), out: make(map[*port]*arrivals)}
	b.there = testbed.NewNamespace(t)
	b.here.Must(t, func() error {
		return errors.Join(testbed.WriteSysctl("ipv4/ip_forward", "1"), testbed.WriteSysctl("ipv4/conf/all/send_redirects", "0"),
			testbed.WriteSysctl("ipv4/icmp_ratelimit", "0"), testbed.WriteSysctl("ipv4/icmp_ratemask", "0"))
	})
	for n := range 2 {
		b.addNamedVLAN(t, "vlan", n+1, "")
	}
	in, out := b.pair(t, "vlan")
	m := &trial{T: t, bed: b, driver: "vlan", in: in, out: out, mode: "native"}
	below := in.name[:len(in.name)-len(".100")]
	m.refused(t, config("native", in, out), "name "+below+" ")
	if command := m.doctor(in, "native"); command != "culvert doctor -i "+below {
		t.Errorf("doctor has the command %q", command)
	}
	m.mode = "generic"
	for _, row := range []string{"forwarded", "punted", "dropped", "changed", "scion", "back", "adopt", "detach", "mtu"} {
		t.Run(row, func(t *testing.T) {
			one := *m
			one.T = t
			if outcome := trials[row](&one); outcome != "yes" {
				t.Errorf("%s: %s, want yes", row, outcome)
			}
		})
	}
	b.detach(t)
}
