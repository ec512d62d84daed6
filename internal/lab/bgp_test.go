// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// bgpPeers returns the directories of the table of prefixes. It does not build the reference programs.
func bgpPeers(t *testing.T) Peers {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return Peers{Module: filepath.Join(root, "peers"), Bin: filepath.Join(root, "bin", "peers")}
}

// upBGP sets up a lab of topology bgp, in which router forwards in rut.
func upBGP(t *testing.T, suffix string, router Router, o Options) *Lab {
	t.Helper()
	o.Name, o.Peers, o.Out = testName(t, suffix), bgpPeers(t), t.Output()
	o.Routers = map[string]Router{"rut": router}
	if router == Culvert {
		// The default is the running executable, which is the test.
		o.Culvert = filepath.Join(filepath.Dir(o.Peers.Bin), "culvert")
	}
	return up(t, "bgp", o)
}

func TestBGP(t *testing.T)        { testBGP(t, Linux) }
func TestBGPCulvert(t *testing.T) { testBGP(t, Culvert) }

// transferSize is the number of bytes that testBGP sends over TCP in each family.
const transferSize = 8 << 20

// testBGP checks routes, pings, traceroutes and TCP in a lab with a small table.
func testBGP(t *testing.T, router Router) {
	l := upBGP(t, "bgp", router, Options{Routes: Routes{Limited: true, V4: 2000, V6: 355}})
	for _, f := range []struct {
		flag, bird         string
		table              BGPTable
		announced, invalid int
		hops               []string
		unreachable        string
	}{
		{"-4", "4", l.BGP.IPv4, 2000, 3, []string{"198.18.1.1", "198.18.12.2"}, "Destination Net Unreachable"},
		{"-6", "6", l.BGP.IPv6, 355, 2, []string{"2001:db8:1::1", "2001:db8:12::2"}, "No route"},
	} {
		if f.table.Announced != f.announced || f.table.Filtered != f.invalid || f.table.Routes != f.announced-f.invalid {
			t.Errorf("IPv%s: the state says %+v", f.bird, f.table)
		}
		nets := birdRoutes(t, l, f.flag)
		if len(nets) != f.announced-f.invalid {
			t.Errorf("IPv%s: rut's kernel has %d routes from BIRD, want %d", f.bird, len(nets), f.announced-f.invalid)
		}
		for addr, want := range map[netip.Addr]bool{f.table.Target: true, f.table.InvalidAddr: false} {
			if got := slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(addr) }); got != want {
				t.Errorf("IPv%s: a route to %s: %v", f.bird, addr, got)
			}
		}
		wantOutput(t, l, "rut", []string{"birdcl", "-s", l.birdSocket("rut"), "show", "protocols", "peer" + f.bird}, "Established")

		// Every address in the table answers.
		last := nets[len(nets)-1].Addr().Next()
		for _, addr := range []netip.Addr{f.table.Target, last} {
			wantOutput(t, l, "left", []string{"ping", "-n", "-c", "2", "-i", "0.2", addr.String()}, "2 received, 0% packet loss")
		}
		out, err := l.Run(t.Context(), "left", "ping", "-n", "-c", "1", "-W", "10", f.table.InvalidAddr.String())
		if err == nil || !strings.Contains(string(out), f.unreachable) {
			t.Errorf("IPv%s: ping to a filtered prefix: %v, %s", f.bird, err, out)
		}
		if got, want := hops(t, l, f.table.Target), append(f.hops, f.table.Target.String()); !slices.Equal(got, want) {
			t.Errorf("IPv%s: traceroute sees %v, want %v", f.bird, got, want)
		}
		if n := transfer(t, l, f.table.Target, transferSize); n != transferSize {
			t.Errorf("IPv%s: %d bytes of %d over TCP", f.bird, n, transferSize)
		}
	}
	checkBGPInterfaces(t, l)
	if router == Culvert {
		checkForwarded(t, l)
	}
	inodes := l.inodes()
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, l.Name)
	for inode := range inodes {
		if _, err := os.Stat(filepath.Join(pinDir, strconv.FormatUint(inode, 10))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pins of namespace %d: %v", inode, err)
		}
	}
}

// checkForwarded wants culvert, and not the kernel, to have forwarded the TCP packets of testBGP.
func checkForwarded(t *testing.T, l *Lab) {
	t.Helper()
	out, err := l.Run(t.Context(), "rut", "culvert", "status", "-j")
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Routers []struct {
			NetNS      string `json:"netns_name"`
			Interfaces []struct {
				Interface string
				Reasons   []struct {
					Reason, Verdict string
					Packets         int
				}
			}
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatal(err)
	}
	type counter struct{ ifname, reason string }
	forwarded := make(map[counter]int)
	for _, r := range status.Routers {
		if r.NetNS != netnsName(l.Name, "rut") {
			continue
		}
		for _, i := range r.Interfaces {
			for _, reason := range i.Reasons {
				if reason.Verdict == "fwd" {
					forwarded[counter{i.Interface, reason.Reason}] += reason.Packets
					forwarded[counter{i.Interface, ""}] += reason.Packets
				}
			}
		}
	}
	// Full segments carry the data of both families in the fewest packets.
	if n, want := forwarded[counter{"to-left", ""}], 2*transferSize/1460; n < want {
		t.Errorf("culvert forwarded %d packets of left, want %d at least: %s", n, want, out)
	}
	for _, ifname := range []string{"to-left", "to-peer"} {
		if forwarded[counter{ifname, "route"}] == 0 {
			t.Errorf("no packet from %s went by culvert's mirror of the table: %s", ifname, out)
		}
	}
}

// birdRoutes lists the routes that BIRD has put into rut's kernel, as ip shows them.
func birdRoutes(t *testing.T, l *Lab, family string) []netip.Prefix {
	t.Helper()
	out, err := l.Run(t.Context(), "rut", "ip", family, "route", "show", "table", "all", "proto", "bird")
	if err != nil {
		t.Fatal(err)
	}
	var nets []netip.Prefix
	for line := range strings.Lines(string(out)) {
		p, err := netip.ParsePrefix(strings.Fields(line)[0])
		if err != nil {
			// A host route is shown without its length.
			a, err := netip.ParseAddr(strings.Fields(line)[0])
			if err != nil {
				t.Fatalf("ip shows %q", line)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		nets = append(nets, p)
	}
	if len(nets) == 0 {
		t.Fatalf("no %s routes from BIRD in rut's kernel", family)
	}
	return nets
}

var traceHop = regexp.MustCompile(`(?m)^ *\d+  (\S+)`)

// hops returns the addresses that answer to a traceroute from left.
func hops(t *testing.T, l *Lab, to netip.Addr) (all []string) {
	t.Helper()
	out, err := l.Run(t.Context(), "left", "traceroute", "-n", "-q", "1", "-w", "10", "-m", "6", to.String())
	if err != nil {
		t.Error(err)
	}
	for _, m := range traceHop.FindAllStringSubmatch(string(out), -1) {
		all = append(all, m[1])
	}
	return all
}

// transfer sends bytes from left to an address in right over TCP, and returns how many arrive unchanged.
func transfer(t *testing.T, l *Lab, to netip.Addr, size int64) int64 {
	t.Helper()
	var server net.Listener
	err := l.Do("right", func() (err error) {
		server, err = net.Listen("tcp", net.JoinHostPort(to.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	received := make(chan int64, 1)
	go func() {
		var unchanged int64
		defer func() { received <- unchanged }()
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buf)
			for i, b := range buf[:n] {
				if b != pattern(unchanged+int64(i)) {
					return
				}
			}
			unchanged += int64(n)
			if err != nil {
				return
			}
		}
	}()
	var client net.Conn
	err = l.Do("left", func() (err error) {
		client, err = net.DialTimeout("tcp", server.Addr().String(), 30*time.Second)
		return err
	})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	data := make([]byte, size)
	for i := range data {
		data[i] = pattern(int64(i))
	}
	if _, err := io.Copy(client, strings.NewReader(string(data))); err != nil {
		t.Error(err)
	}
	client.Close()
	return <-received
}

// pattern returns the byte at an offset of what transfer sends.
func pattern(offset int64) byte { return byte(offset ^ offset>>8 ^ offset>>16) }

// checkBGPInterfaces checks the offloads of the links, and the sysctls of rut.
func checkBGPInterfaces(t *testing.T, l *Lab) {
	t.Helper()
	rut, err := l.Namespace("rut")
	if err != nil {
		t.Fatal(err)
	}
	if len(rut.Interfaces) != 3 {
		t.Errorf("rut has %v", rut.Interfaces)
	}
	for _, i := range rut.Interfaces {
		err := l.Do(i.PeerNS, func() error {
			flags, err := netdev.Ethtool(i.Peer, unix.ETHTOOL_GFLAGS, 0)
			if flags&ethFlagTxVLAN != 0 {
				t.Errorf("tx VLAN offload of %s/%s is on", i.PeerNS, i.Peer)
			}
			if gro, err := netdev.Ethtool(i.Peer, unix.ETHTOOL_GGRO, 0); err != nil || gro != 1 {
				t.Errorf("gro of %s/%s: %d, %v", i.PeerNS, i.Peer, gro, err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	err = l.Do("rut", func() error {
		for key, want := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/conf/all/rp_filter": "0", "ipv4/conf/to-left/rp_filter": "0", "ipv4/conf/to-peer/rp_filter": "0",
		} {
			if got := readSysctl(t, key); got != want {
				t.Errorf("%s in rut is %s", key, got)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// eventually waits until is returns true. what describes it in the error. The limit is for machines that hang, not for busy
// ones.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// TestBGPOriginChanges moves the authorization for a prefix to another AS and back. rut loses the route and gets it again.
func TestBGPOriginChanges(t *testing.T) {
	l := upBGP(t, "roa", Linux, Options{Routes: Routes{Limited: true}})
	before, err := os.ReadFile(l.roaFile())
	if err != nil {
		t.Fatal(err)
	}
	rtr, err := l.Process("rpki-stayrtr")
	if err != nil {
		t.Fatal(err)
	}
	target := l.BGP.IPv4.Target
	old := fmt.Sprintf(`"prefix":"1.1.1.0/24","maxLength":32,"asn":%d`, asOrigin)
	changed := strings.Replace(string(before), old, strings.Replace(old, strconv.Itoa(asOrigin), "64511", 1), 1)
	if changed == string(before) {
		t.Fatalf("no %s in %s", old, before)
	}
	for _, step := range []struct {
		text string
		want bool
	}{{changed, false}, {string(before), true}} {
		if err := os.WriteFile(l.roaFile(), []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := rtr.signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("a route to %s: %v", target, step.want), func() bool {
			has := func(p netip.Prefix) bool { return p.Contains(target) }
			return slices.ContainsFunc(birdRoutes(t, l, "-4"), has) == step.want
		})
	}
}

func TestBGPPlain(t *testing.T) {
	l := upBGP(t, "plain", Linux, Options{Routes: Routes{Limited: true, V4: 50, V6: 50}, Plain: true})
	if l.BGP.IPv4.Routes != 47 || l.BGP.IPv6.Routes != 48 {
		t.Errorf("%d and %d routes", l.BGP.IPv4.Routes, l.BGP.IPv6.Routes)
	}
	for _, table := range []BGPTable{l.BGP.IPv4, l.BGP.IPv6} {
		if got := hops(t, l, table.Target); len(got) != 3 || got[2] != table.Target.String() {
			t.Errorf("traceroute sees %v", got)
		}
	}
	if len(l.Processes) != 0 {
		t.Errorf("processes: %v", l.Processes)
	}
}

// TestInterruptedBGPLeavesNothing cancels the context of Up at several steps.
func TestInterruptedBGPLeavesNothing(t *testing.T) {
	for i, text := range []string{"veth pairs", "RPKI by RTR", "BGP between", "filter in rut"} {
		t.Run(text, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := Options{
				Name: testName(t, "kb"+strconv.Itoa(i)), Out: &cancelAt{text: text, cancel: cancel},
				Peers: bgpPeers(t), Routes: Routes{Limited: true}, Routers: map[string]Router{"rut": Linux},
			}
			_, err := Up(ctx, "bgp", o)
			if !o.Out.(*cancelAt).hit || !errors.Is(err, context.Canceled) {
				t.Errorf("Up returned %v", err)
			}
			if err == nil {
				_ = Down(o.Name)
			}
			wantNothingLeft(t, o.Name)
		})
	}
}

// TestBGPFailuresLeaveLogs lets Up fail for several causes, and wants one line that names the cause. What is left is the logs of
// the processes that had started, until Down removes them.
func TestBGPFailuresLeaveLogs(t *testing.T) {
	fail := func(o Options, logs []string, words ...string) {
		t.Helper()
		o.Peers, o.Routes = bgpPeers(t), Routes{Limited: true}
		_, err := Up(t.Context(), "bgp", o)
		for _, want := range words {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Up returned %v, want one line with %q", err, want)
			}
		}
		if err == nil {
			_ = Down(o.Name)
		}
		wantLogsLeft(t, o.Name, err, logs...)
	}
	// The program ends during its start or a moment later.
	fail(Options{Name: testName(t, "fc"), Culvert: "/bin/false"}, []string{"rut-culvert.log"}, "rut-culvert", "ended")
	fail(Options{
		Name: testName(t, "ft"), Routers: map[string]Router{"rut": Linux}, Timeout: time.Nanosecond,
	}, []string{"rpki-stayrtr.log"}, "after 1ns")
	t.Setenv("PATH", t.TempDir())
	fail(Options{Name: testName(t, "fp"), Routers: map[string]Router{"rut": Linux}}, nil, "iputils-ping")
}
