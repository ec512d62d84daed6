// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/testbed"
)

// With assigned addresses and neighbors a packet arrives without any neighbor resolution.
func TestAddresses(t *testing.T) {
	testbed.NeedRoot(t)
	for _, pair := range [][2]string{{"198.18.0.1/24", "198.18.0.2/24"}, {"2001:db8::1/64", "2001:db8::2/64"}} {
		t.Run(pair[0], func(t *testing.T) {
			a, b := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
			pa, pb := netip.MustParsePrefix(pair[0]), netip.MustParsePrefix(pair[1])
			for _, err := range []error{
				a.Assign(pa), b.Assign(pb), a.SetNeighbor(pb.Addr(), b.MAC), b.SetNeighbor(pa.Addr(), a.MAC),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			var from, to *net.UDPConn
			err := b.Netns.Do(func() (err error) {
				to, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(pb.Addr(), 4000)))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			err = a.Netns.Do(func() (err error) {
				from, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(pb.Addr(), 4000)))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			if _, err := from.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 10)
			if n, err := to.Read(buf); err != nil || string(buf[:n]) != "hello" {
				t.Errorf("received %q, error %v", buf[:n], err)
			}
		})
	}
}
