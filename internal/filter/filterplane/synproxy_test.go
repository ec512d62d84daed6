// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

var (
	webAddr4 = netip.MustParseAddr("203.0.113.2")
	webAddr6 = netip.MustParseAddr("2001:db8:2::2")
)

// command runs a command in this thread's namespace, with input as its standard input.
func command(t *testing.T, input string, args ...string) {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Stdin = strings.NewReader(input)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// newProxyBed makes this namespace a router between the client and a server in a third namespace.
func newProxyBed(t *testing.T) (*synBed, *testbed.Namespace) {
	t.Helper()
	b := newSynBed(t)
	web := testbed.NewNamespace(t)
	testbed.AddVeth(t, "back", "web")
	web.Take(t, "web")
	web.Must(t, func() error {
		if err := testbed.PrepareEnd("web", webAddr4.String()+"/24", webAddr6.String()+"/64"); err != nil {
			return err
		}
		for dst, via := range map[string]string{"0.0.0.0/0": "203.0.113.1", "::/0": "2001:db8:2::1"} {
			if err := testbed.AddRoute(dst, via); err != nil {
				return err
			}
		}
		return testbed.WriteSysctl("core/somaxconn", "8")
	})
	if err := testbed.PrepareEnd("back", "203.0.113.1/24", "2001:db8:2::1/64"); err != nil {
		t.Fatal(err)
	}
	b.client.Must(t, func() error {
		for dst, via := range map[string]string{"203.0.113.0/24": "192.0.2.1", "2001:db8:2::/64": "2001:db8::1"} {
			if err := testbed.AddRoute(dst, via); err != nil {
				return err
			}
		}
		return nil
	})
	testbed.Sysctl(t, "ipv4/ip_forward", "1")
	testbed.Sysctl(t, "ipv6/conf/all/forwarding", "1")
	return b, web
}

// In IPv6 the rule is one of ip6tables. The synproxy of nft checks the checksum of TCP as if the packet were IPv4
// (nft_synproxy_do_eval). So it drops packets whose checksum no device has checked, among them all that an XDP program on a veth
// has seen.
const (
	proxyRules4 = `table ip proxy {
	chain raw { type filter hook prerouting priority raw; iif "srv" tcp dport 8080 tcp flags syn / fin,syn,rst,ack notrack; }
	chain forward {
		type filter hook forward priority filter;
		iif "srv" tcp dport 8080 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
		ct state invalid drop
	}
}`
	proxyRules6 = `*raw
-A PREROUTING -i srv -p tcp --dport 8080 --syn -j CT --notrack
COMMIT
*filter
-A FORWARD -i srv -p tcp --dport 8080 -m conntrack --ctstate INVALID,UNTRACKED -j SYNPROXY --mss 1460 --wscale 7 --timestamp --sack-perm
-A FORWARD -m conntrack --ctstate INVALID -j DROP
COMMIT
`
)

// tracked returns the number of entries of connection tracking in this namespace.
func tracked(t *testing.T) int {
	t.Helper()
	n, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	n6, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	return len(n) + len(n6)
}

// TestSynFloodForwarded has a client reach a server behind this router in spite of a flood. The filter answers SYNs, and the
// SYNPROXY rule checks the cookies. No connection of the flood is tracked.
func TestSynFloodForwarded(t *testing.T) {
	for _, addr := range []netip.Addr{webAddr4, webAddr6} {
		for _, timestamps := range []string{"0", "1"} { // of the client
			t.Run(fmt.Sprintf("%s timestamps %s", addr, timestamps), func(t *testing.T) {
				b, web := newProxyBed(t)
				testbed.Sysctl(t, "netfilter/nf_conntrack_tcp_loose", "0")
				testbed.Sysctl(t, "ipv4/tcp_syncookies", "1")
				testbed.Sysctl(t, "ipv4/tcp_timestamps", "1")
				b.client.Must(t, func() error { return testbed.WriteSysctl("ipv4/tcp_timestamps", timestamps) })
				command(t, proxyRules4, "nft", "-f", "-")
				command(t, proxyRules6, "ip6tables-restore")
				to := netip.AddrPortFrom(addr, 8080)
				var server *testbed.WebServer
				web.Must(t, func() error { server = testbed.StartWebServer(t, to); return nil })
				f := loadSynFilter(t, b.server, Service{Addr: to, Forwarded: true})
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
						all := timestamps == "1"
						if cli.Timestamps != all || cli.SACK != all || srv.Timestamps != all || srv.SACK != all {
							return fmt.Errorf("options of the client %+v, of the server %+v", *cli, *srv)
						}
						if all && (cli.SndWscale != defaultWindowScale || cli.RcvWscale != srv.SndWscale) {
							return fmt.Errorf("windows of the client %+v, of the server %+v", *cli, *srv)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				sent := stop()
				if n := f.counted(t, bpfobj.PipelineReasonXMIT_FILTER_SYNACK); n != sent+3 {
					t.Errorf("%d SYNs answered, %d sent", n, sent+3)
				}
				if n := tracked(t); n > 3 {
					t.Errorf("%d connections tracked", n)
				}
			})
		}
	}
}
