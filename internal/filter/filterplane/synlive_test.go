// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// TestSynFloodUnprotected floods a listener with a short queue. No client gets a connection, so that TestSynFloodProtected is
// worth something.
func TestSynFloodUnprotected(t *testing.T) {
	for _, addr := range []netip.Addr{synAddr4, synAddr6} {
		b := newSynBed(t)
		testbed.Sysctl(t, "ipv4/tcp_syncookies", "0")
		to := netip.AddrPortFrom(addr, 8080)
		testbed.StartWebServer(t, to)
		stop := b.flood(t, to)
		defer stop()
		n := 0
		for end := time.Now().Add(30 * time.Second); n < 6 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			n = halfOpen(t)
		}
		if n < 6 {
			t.Fatalf("%s: %d half open connections", addr, n)
		}
		err := b.client.Do(func() error {
			c, err := (&net.Dialer{Timeout: 2 * time.Second}).Dial("tcp", to.String())
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			t.Errorf("%s: a client has a connection in spite of the flood", addr)
		}
		stop()
	}
}

// TestSynFloodProtected has a client use a protected service in spite of a flood, with each setting of tcp_timestamps. The kernel
// keeps no state of the flood.
func TestSynFloodProtected(t *testing.T) {
	for _, addr := range []netip.Addr{synAddr4, synAddr6} {
		for _, timestamps := range []string{"0", "1", "2"} {
			t.Run(fmt.Sprintf("%s timestamps %s", addr, timestamps), func(t *testing.T) {
				b := newSynBed(t)
				testbed.Sysctl(t, "ipv4/tcp_syncookies", "2")
				testbed.Sysctl(t, "ipv4/tcp_timestamps", timestamps)
				to := netip.AddrPortFrom(addr, 8080)
				server := testbed.StartWebServer(t, to)
				f := loadSynFilter(t, b.server, Service{Addr: to})
				f.attach(t)
				stop := b.flood(t, to)
				for range 3 {
					err := b.client.Do(func() error {
						cli, local, err := testbed.Exchange(to)
						if err != nil {
							return err
						}
						srv := server.Info(local)
						if srv == nil {
							return fmt.Errorf("no TCP_INFO of %s", local)
						}
						all := timestamps == "2"
						if cli.Timestamps != all || cli.SACK != all || srv.Timestamps != all || srv.SACK != all {
							return fmt.Errorf("options of the client %+v, of the server %+v", *cli, *srv)
						}
						if cli.SndWscale != srv.RcvWscale || cli.RcvWscale != srv.SndWscale || !all && cli.SndWscale != -1 {
							return fmt.Errorf("windows of the client %+v, of the server %+v", *cli, *srv)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if n := halfOpen(t); n != 0 {
					t.Errorf("%d half open connections", n)
				}
				sent := stop()
				for name, want := range map[string]string{"SyncookiesSent": "0", "SyncookiesFailed": "0", "SyncookiesRecv": "3"} {
					if got := netstat(t, name); got != want {
						t.Errorf("%s is %s, not %s", name, got, want)
					}
				}
				if n := f.counted(t, bpfobj.PipelineReasonXMIT_FILTER_SYNACK); n != sent+3 {
					t.Errorf("%d SYNs answered, %d sent", n, sent+3)
				}
				if n := f.counted(t, bpfobj.PipelineReasonDROP_FILTER_COOKIE); n != 0 {
					t.Errorf("%d packets dropped", n)
				}
			})
		}
	}
}
