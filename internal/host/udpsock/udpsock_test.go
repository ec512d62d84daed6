// SPDX-License-Identifier: Apache-2.0

package udpsock

import (
	"net"
	"net/netip"
	"testing"

	"culvert/internal/testbed/otherprocess"
)

func TestOthers(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			pid, at, end := otherprocess.Hold(t, "udp", address)
			own, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.Addr().AsSlice()})
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			addrs := []netip.AddrPort{own.LocalAddr().(*net.UDPAddr).AddrPort(), at}
			got, err := Others(addrs)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Addr != at || got[0].PID != pid || got[0].Name == "" {
				t.Errorf("got %+v, want process %d at %s alone", got, pid, at)
			}

			end()
			if got, err := Others(addrs); err != nil || got != nil {
				t.Errorf("got %+v (%v) after the process has ended", got, err)
			}
		})
	}
}
