// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterBed is a network namespace with an interface ft0 and its peer, which sends frames.
type filterBed struct {
	t    *testing.T
	dir  string
	fd   int
	peer *net.Interface
}

func newFilterBed(t *testing.T) *filterBed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ft0"}, PeerName: "ft1"}))
	for _, name := range []string{"ft0", "ft1"} {
		// The kernel must not send packets of its own.
		must(os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0))
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
	}
	b := &filterBed{t: t, dir: t.TempDir()}
	var err error
	b.peer, err = net.InterfaceByName("ft1")
	must(err)
	b.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(err)
	t.Cleanup(func() {
		unix.Close(b.fd)
		b.expect(0, "", "detach", "--all")
	})
	return b
}

// expect runs a command line, and wants an exit status and a text. Standard error may have one line.
func (b *filterBed) expect(status int, want string, args ...string) (stdout string) {
	b.t.Helper()
	got, stdout, stderr := culvert(b.t, args...)
	if got != status || !strings.Contains(stdout+stderr, want) || strings.Count(stderr, "\n") > 1 || status != 0 && stderr == "" {
		b.t.Errorf("culvert %q: status %d, stdout %q, stderr %q; want status %d and %q", args, got, stdout, stderr, status, want)
	}
	return stdout
}

// filter runs 'culvert filter' with a line of arguments.
func (b *filterBed) filter(status int, want, line string, more ...string) string {
	b.t.Helper()
	return b.expect(status, want, append(append([]string{"filter"}, strings.Fields(line)...), more...)...)
}

func (b *filterBed) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// frame returns an Ethernet frame with a UDP packet, or with an ICMP echo request if the port is 0.
func frame(src string, port uint16) []byte {
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	eth.EthernetType = layers.EthernetTypeIPv4
	ip := &layers.IPv4{Version: 4, TTL: 64, SrcIP: net.ParseIP(src), DstIP: net.IPv4(192, 0, 2, 1), Protocol: layers.IPProtocolUDP}
	all := []gopacket.SerializableLayer{eth, ip}
	if port == 0 {
		ip.Protocol = layers.IPProtocolICMPv4
		all = append(all, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0)})
	} else {
		udp := &layers.UDP{SrcPort: 1024, DstPort: layers.UDPPort(port)}
		must(udp.SetNetworkLayerForChecksum(ip))
		all = append(all, udp)
	}
	buf := gopacket.NewSerializeBuffer()
	must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(all, gopacket.Payload("culvert"))...))
	return buf.Bytes()
}

func (b *filterBed) send(n int, f []byte) {
	b.t.Helper()
	for range n {
		if err := unix.Sendto(b.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: b.peer.Index}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// counted waits until a rule has counted some packets, since a veth delivers them with a delay.
func (b *filterBed) counted(rule string, want uint64) {
	b.t.Helper()
	var got uint64
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = b.report().packets(rule); got >= want {
			break
		}
	}
	if got != want {
		b.t.Errorf("rule %s has counted %d packets, want %d", rule, got, want)
	}
}

type filterReport struct {
	Rules []struct {
		Rule, Words, From string
		Packets           uint64
	}
	Sets []struct {
		Set   string
		Count int
	}
	Services []struct{ Address string }
}

func (r filterReport) packets(rule string) uint64 {
	for _, x := range r.Rules {
		if x.Rule == rule {
			return x.Packets
		}
	}
	return 0
}

func (r filterReport) names() string {
	var names []string
	for _, x := range r.Rules {
		names = append(names, x.Rule)
	}
	return strings.Join(names, " ")
}

func (b *filterBed) report() (r filterReport) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(b.filter(0, "", "list -j")), &r); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *filterBed) order(want string) {
	b.t.Helper()
	if got := b.report().names(); got != want {
		b.t.Errorf("the rules are %s, want %s", got, want)
	}
}

const onFt0 = "interfaces = [\"ft0\"]\n[filter]\n"

// TestFilterCommands changes the rules of a data plane that no process serves.
func TestFilterCommands(t *testing.T) {
	b := newFilterBed(t)
	for _, line := range []string{"list", "add drop icmp", "del x", "flush", "set list", "watch -n 1", "top --once", "protect 192.0.2.1:80"} {
		b.filter(1, "no data plane in this network namespace: attach one with", line)
	}
	b.expect(0, "culvert attached to ft0\n", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	b.filter(0, "filter of culvert on ft0  no rules: add one with 'culvert filter add'\n", "list")

	program := b.file("icmp.ddd", "6\n40 0 0 12\n21 0 3 2048\n48 0 0 23\n21 0 1 1\n6 0 0 262144\n6 0 0 0\n")
	b.filter(0, "rule noicmp added\n", "add --name noicmp drop -f", program)
	b.filter(0, "rule rule1 added\n", "add count udp port 53")
	b.filter(0, "rule all added\n", "add --first --name all count")
	b.filter(0, "rule mid added\n", "add --name mid --before rule1 -i ft0 limit 1000/s --per src/24,48 udp")
	b.order("all noicmp mid rule1")
	b.send(3, frame("198.51.100.7", 0))
	b.send(2, frame("198.51.100.7", 53))
	b.counted("rule1", 2)
	b.counted("noicmp", 3)
	b.counted("all", 5)
	b.filter(0, "  mid           2   120B     0  hand  limit 1kpps --per src/24,48 -i ft0 udp\n", "list")
	b.expect(0, "  filter  4 rules  dropped 3 packets, 180B\n", "status", "--on", "culvert")

	// A change that is refused has no effect.
	for _, tt := range []struct {
		status     int
		line, want string
	}{
		{1, "add drop icmp and port", "syntax error"},
		{1, "add drop inbound", "what XDP cannot see"},
		{1, "add drop -f " + b.file("bad.ddd", "1\n48 0 0 23\n"), "classic BPF: "},
		{1, "add drop -f " + b.file("empty", ""), "is empty: want an expression"},
		{1, "add drop -", "standard input is empty"},
		{1, "add -i lo count", "rule for lo: the data plane is not attached to it, but to ft0"},
		{1, "add --src @bad drop", "no set bad: make it with"},
		{1, "add --name all count", "there is a rule all already: replace it with --replace, or choose another --name"},
		{1, "add --before none count", "no rule none"},
		{1, "add --replace --name none count", "no rule none"},
		{2, "add drop", "use --all to confirm it"},
		{2, "add --first pass", "lets every packet skip the rest of the filter: use --all to confirm it"},
		{2, "add limit udp", `"udp" is no rate`},
		{2, "add --per x limit 1pps", "use src or dst"},
		{2, "add limit 60GB/s", "use 1B/s to 50GB/s"},
		{2, "add --burst 3600 limit 1pps", "burst of 3600 packets: use less than"},
		{2, "add --per src --entries 99999999 limit 1pps", "99999999 entries for a rate: use 1 to"},
		{1, "del all none", "no rule none"},
		{1, "set del none", "no set none"},
		{1, "set del none 192.0.2.1", "no set none"},
		{1, "set show none", "no set none"},
		{1, "set replace none 192.0.2.1", "no set none: there is none; 'culvert filter set add' makes one"},
		{1, "set add bad 192.0.2.1 192.0.2.300", `"192.0.2.300" is no address`},
		{1, "set add bad -f " + b.file("bad.txt", "192.0.2.1\n# x\n192.0.2.0/33\n"), "bad.txt:3: "},
		{1, "unprotect 192.0.2.1:80", "192.0.2.1:80 is not protected"},
		{1, "list --on none", "no data plane none in this network namespace: there is culvert"},
	} {
		b.filter(tt.status, tt.want, tt.line)
	}
	b.order("all noicmp mid rule1")
	if r := b.report(); len(r.Sets) != 0 || r.packets("all") != 5 {
		t.Errorf("something has changed: %+v", r)
	}

	// A rule that is replaced keeps its place in the order and its counters.
	b.filter(0, "rule noicmp replaced\n", "add --replace --name noicmp drop icmp or arp")
	b.order("all noicmp mid rule1")
	b.send(1, frame("198.51.100.7", 0))
	b.counted("noicmp", 4)
	b.filter(0, "rules mid, all deleted\n", "del mid all")
	b.order("noicmp rule1")

	// What a deleted rule has dropped stays in the sum, and its name is not given again.
	b.expect(0, "  filter  2 rules  dropped 4 packets, 240B\n", "status", "--on", "culvert")
	b.filter(0, "rule last added\n", "add --name last count")
	b.filter(0, "rules noicmp, rule1 deleted\n", "del noicmp rule1")
	b.expect(0, "  filter  1 rule  dropped 4 packets, 240B\n", "status", "--on", "culvert")
	b.filter(0, "rule rule2 added\n", "add count")

	b.filter(0, "", "flush")
}

// TestFilterSets adds, uses and deletes sets.
func TestFilterSets(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	b.filter(0, "culvert has no sets", "set list")
	b.filter(0, "set bad has 2 prefixes\n", "set add bad 198.51.100.0/24 2001:db8::/32 --timeout 1h")
	b.filter(1, "timeout 10 has no unit: use s, m, h or d, as in 10s\n", "set add bad --timeout 10 10.0.0.0/8")
	b.filter(0, "set bad has 3 prefixes\n", "set add bad 203.0.113.9")
	b.filter(0, "203.0.113.9\n", "set show bad")
	b.filter(0, "rule bad added\n", "add --name bad --src @bad drop")
	b.filter(0, "rule good added\n", "add --name good --src !@bad count")
	b.send(2, frame("198.51.100.7", 53))
	b.send(1, frame("192.0.2.9", 53))
	b.counted("good", 1)
	b.counted("bad", 2)
	b.filter(1, "rule bad uses set bad: delete the rule first", "set del bad")
	b.filter(1, "192.0.2.9/32 is not in it: nothing is deleted", "set del bad 203.0.113.9 192.0.2.9")
	b.filter(0, "set bad has 2 prefixes\n", "set del bad 203.0.113.9")
	b.filter(1, "set bad has members of another type than endpoint", "set add bad --type endpoint 192.0.2.1:53")
	b.filter(1, "no set baad: there is bad; 'culvert filter set add' makes one\n", "set replace baad 192.0.2.9")
	b.filter(2, "unknown flag: --type", "set replace bad --type prefix 192.0.2.9")
	b.filter(0, "set bad has 1 prefix\n", "set replace bad -f", b.file("new", "192.0.2.9 # innocent\n"))
	b.filter(0, "set new has 1 prefix\n", "set add new --replace 192.0.2.9")
	b.filter(0, "set new has 1 prefix\n3 entries given, 1 prefix after merging those that touch or overlap\n", "set replace new 192.0.2.0/25 192.0.2.128/25 192.0.2.7")
	b.filter(0, "set new has 3 prefixes\n1 entry given, a range of 2 prefixes\n", "set add new 198.51.100.1-198.51.100.2")
	b.filter(0, "set new deleted\n", "set del new")
	b.send(1, frame("192.0.2.9", 53))
	b.send(1, frame("198.51.100.7", 53))
	b.counted("bad", 3)
	b.counted("good", 2)
	b.filter(0, "set dns has 2 endpoints\n", "set add dns --type endpoint 192.0.2.1:53 [2001:db8::1]:53")
	b.filter(0, "", "add --name dns --dst @dns count")
	b.send(1, frame("198.51.100.7", 53))
	b.send(1, frame("198.51.100.7", 54))
	b.counted("good", 4)
	b.counted("dns", 1)
	b.filter(0, "set bad  1 prefix     from hand  for bad, good\nset dns  2 endpoints  from hand  for dns\n", "set list")
	for line, want := range map[string]string{
		"filter del ": "bad\ndns\ngood\n:4\n", "filter del good ": "bad\ndns\n:4\n", "filter add --before ": "bad\ndns\ngood\n:4\n",
		"filter set show ": "bad\ndns\n:4\n", "filter add --src ": "@bad\n!@bad\n@dns\n!@dns\n:4\n", "filter add -i ": "ft0\n:4\n",
		"filter list --on ": "culvert\n:4\n",
	} {
		// Shells complete by this command. It writes a directive to standard error.
		if _, out, _ := culvert(t, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
	b.filter(0, "3 rules, 2 sets deleted\n", "flush --all")
	b.filter(0, "nothing deleted\n", "flush")
}

// TestFilterFile has rules in the configuration file, and others made by hand.
func TestFilterFile(t *testing.T) {
	b := newFilterBed(t)
	const (
		two = onFt0 + "[[filter.rule]]\nname = \"a\"\naction = \"count\"\nsrc = \"@s\"\n" +
			"[[filter.rule]]\nname = \"b\"\naction = \"drop\"\nexpression = \"icmp\"\n" +
			"[[filter.set]]\nname = \"s\"\nentries = [\"198.51.100.0/24\"]\n"
		other = onFt0 + "[[filter.rule]]\nname = \"b\"\naction = \"count\"\nexpression = \"icmp\"\n" +
			"[[filter.rule]]\nname = \"c\"\naction = \"count\"\n"
	)
	path := b.file("c.toml", two)
	b.expect(0, "", "attach", "-c", path, "ft0")
	b.order("a b")
	b.filter(0, "", "add --name first --first count")
	b.filter(0, "", "add --name last count")
	b.order("first a b last")
	b.send(2, frame("198.51.100.7", 0))
	b.counted("b", 2)
	b.counted("a", 2)

	b.file("c.toml", other)
	b.filter(1, "", "list --on x")
	b.expect(0, "", "attach", "-c", path, "ft0")
	b.order("first b c last")
	b.send(1, frame("198.51.100.7", 0))
	b.counted("last", 1)
	b.counted("b", 3)
	if r := b.report(); len(r.Sets) != 0 || r.Rules[0].From != "hand" || r.Rules[1].From != "file" {
		t.Errorf("got %+v", r)
	}

	// An error in the file is reported before anything is touched.
	rule := "[[filter.rule]]\nname = \"last\"\naction = \"drop\"\nexpression = \"icmp\"\n"
	for text, want := range map[string]string{
		onFt0 + rule: "rule last is there already, made by hand: delete it with 'culvert filter del last'",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"drop\"\n":                                 "c.toml:5:10: rule x: the rule would drop every packet: say all = true",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"drop\"\nexpression = \"icmp or\"\n":       "c.toml:6:14: rule x: ",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"drop\"\nprogram = \"none\"\n":             "c.toml:6:11: rule x: reading ",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"limit\"\nrate = \"1kbps\"\n":              "c.toml:6:8: rule x: \"1kbps\" is no rate",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"limit\"\nrate = \"1pps\"\nburst = 3600\n": "c.toml:7:9: rule x: burst of 3600 packets: use less than",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"limit\"\nrate = \"60GB/s\"\n":             "c.toml:6:8: rule x: rate \"60GB/s\": use 1B/s to 50GB/s",
		onFt0 + manySets(257): "c.toml:771:3: 257 sets: ",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"limit\"\nrate = \"1pps\"\nper = \"src/99,9\"\n":         "c.toml:7:7: rule x: per \"src/99,9\": ",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"count\"\nsrc = \"@t\"\n":                                "c.toml:6:7: rule x: no set t: put it into the file, ",
		onFt0 + "[[filter.rule]]\nname = \"x\"\naction = \"count\"\ninterfaces = \"lo\"\n":                         "c.toml:6:14: rule x: the data plane is to be on ft0, not on lo",
		onFt0 + "[[filter.set]]\nname = \"t\"\nentries = [\"x\"]\n":                                                "c.toml:5:1: set t: \"x\" is no address",
		onFt0 + "[[filter.set]]\nname = \"t\"\nentries = []\ntimeout = \"soon\"\n":                                 "c.toml:6:11: set t: \"soon\" is no timeout",
		onFt0 + "[[filter.protect]]\naddress = \"192.0.2.1\"\n":                                                    "c.toml:4:11: \"192.0.2.1\" is no address with a port",
		onFt0 + "[[filter.protect]]\naddress = \"192.0.2.1:80\"\nmss = 1440\n":                                     "c.toml:5:7: mss is for a service on another host",
		onFt0 + "[[filter.protect]]\naddress = \"192.0.2.1:80\"\n[[filter.protect]]\naddress = \"192.0.2.1:80\"\n": "c.toml:6:11: 192.0.2.1:80 is protected a second time",
	} {
		b.file("c.toml", text)
		b.expect(1, want, "attach", "-c", path, "ft0")
		b.expect(1, want, "run", "-c", path)
	}
	b.order("first b c last")
	b.counted("b", 3)

	// A process does the same, and its rules stay when it ends. They also stay with a file without the table.
	b.file("c.toml", two)
	r := startCulvert(t, "run", "-c", path)
	r.waitFor(t, "msg=attached")
	b.order("first a b last")
	b.filter(0, "", "add --name while count")
	r.interrupt(t)
	b.order("first a b last while")
	b.filter(0, "the configuration file brings a back when it is read again\n", "del a first")
}

// manySets returns more sets than are allowed.
func manySets(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[[filter.set]]\nname = \"s%d\"\n\n", i)
	}
	return text.String()
}

// TestFilterFileAndHand has rules, sets and services of the same names in the file and made by hand.
func TestFilterFileAndHand(t *testing.T) {
	b := newFilterBed(t)
	const (
		rule = "[[filter.rule]]\nname = \"a\"\naction = \"count\"\nsrc = \"@s\"\n"
		set  = "[[filter.set]]\nname = \"s\"\nentries = [\"198.51.100.0/24\"]\n"
	)
	path := b.file("c.toml", onFt0+rule+set)
	attach := func(status int, want, text string) {
		t.Helper()
		b.file("c.toml", onFt0+text)
		b.expect(status, want, "attach", "-c", path, "ft0")
	}
	attach(0, "", rule+set)

	// A file that is refused changes no members, and the sets that it adds do not stay.
	const wrong = "[[filter.rule]]\nname = \"w\"\naction = \"limit\"\nrate = \"1pps\"\nburst = 3600\n"
	attach(1, "c.toml:11:9: rule w: burst of", rule+wrong+strings.Replace(set, "198.51.100", "203.0.113", 1)+manySets(2))
	b.filter(0, "198.51.100.0/24\n", "set show s")
	if r := b.report(); len(r.Sets) != 1 || r.names() != "a" {
		t.Errorf("got %+v", r)
	}

	// A rule of the file that is replaced by hand stays the file's.
	b.filter(0, "rule a replaced\nthe configuration file brings a back when it is read again\n", "add --replace --name a drop icmp")
	attach(0, "", rule+set)
	if r := b.report(); r.Rules[0].Words != "count --src @s" || r.Rules[0].From != "file" {
		t.Errorf("got %+v", r)
	}

	// A set made by hand becomes the file's.
	b.filter(0, "", "flush --all")
	b.filter(0, "", "set add s 203.0.113.9")
	b.filter(0, "", "set add kept 203.0.113.8")
	attach(0, "sets made by hand are the configuration file's now", rule+set+"[[filter.set]]\nname = \"kept\"\n")
	b.filter(0, "kept  1 prefix     from file", "set list")
	b.filter(0, "198.51.100.0/24\n", "set show s")
	b.filter(0, "", "del a")
	b.filter(0, "set s deleted\nthe configuration file brings it back when it is read again\n", "set del s")
	b.filter(0, "", "set add s 203.0.113.9")
	attach(0, "", rule+set+"[[filter.set]]\nname = \"kept\"\n")

	// The file changes the type of its set, not of another.
	b.filter(0, "", "set add hand 203.0.113.9")
	attach(1, "c.toml:8:8: set hand is there already, made by hand, with members of another type",
		rule+"[[filter.set]]\ntype = \"endpoint\"\nname = \"hand\"\n"+set)
	attach(0, "", strings.Replace(rule, "src", "dst", 1)+
		"[[filter.set]]\nname = \"s\"\ntype = \"endpoint\"\nentries = [\"192.0.2.1:53\"]\n")
	b.filter(0, "192.0.2.1:53\n", "set show s")
	b.send(1, frame("198.51.100.7", 53))
	b.send(1, frame("198.51.100.7", 54))
	b.send(1, frame("198.51.100.7", 53))
	b.counted("a", 2)

	// A set cannot be left out of the file while a rule made by hand uses it.
	b.filter(0, "", "add --name h --dst @s count")
	attach(1, "rule h, made by hand, uses set s, which is no longer in the file: delete the rule with 'culvert filter del h'", "")
	b.filter(0, "", "del h")
	attach(0, "", "")

	b.filter(0, "", "protect 192.0.2.7:443")
	const service = "[[filter.protect]]\naddress = \"192.0.2.7:443\"\n"
	attach(1, "c.toml:4:11: 192.0.2.7:443 is protected already, by hand and in another way", service+"forwarded = true\n")
	b.filter(0, "protect 192.0.2.7:443  from hand\n", "list")
	attach(0, "", service)
	b.filter(0, "protect 192.0.2.7:443  from file\n", "list")
}

// TestFilterFileNewPlane has a file that is refused before a data plane is made.
func TestFilterFileNewPlane(t *testing.T) {
	b := newFilterBed(t)
	path := b.file("c.toml", onFt0+"[[filter.rule]]\nname = \"x\"\naction = \"count\"\ndst = \"@t\"\n")
	for _, args := range [][]string{{"attach", "-c", path, "ft0"}, {"run", "-c", path}, {"filter", "test", "-c", path, b.pcapOf()}} {
		b.expect(1, "c.toml:6:7: rule x: no set t", args...)
	}
}

// program returns the ID of the program on ft0.
func (b *filterBed) program() uint32 {
	b.t.Helper()
	l, err := netlink.LinkByName("ft0")
	must(err)
	if l.Attrs().Xdp == nil || l.Attrs().Xdp.ProgId == 0 {
		b.t.Fatal("no program on ft0")
	}
	return l.Attrs().Xdp.ProgId
}

// TestFilterSetKeepsProgram changes members of a set. The program stays the same.
func TestFilterSetKeepsProgram(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	b.filter(0, "", "set add s 192.0.2.1")
	b.filter(0, "", "add --src @s count")
	before := b.program()
	b.filter(0, "set s has 2 prefixes\n", "set add s 192.0.2.3")
	b.filter(0, "set s has 1 prefix\n", "set replace s 192.0.2.4")
	b.filter(0, "set s has 2 prefixes\n", "set add s 192.0.2.9 --timeout 1h")
	if now := b.program(); now != before {
		t.Errorf("program %d has become %d", before, now)
	}
	b.filter(0, "", "add --name more count")
	if now := b.program(); now == before {
		t.Error("a new rule has brought no new program: this test sees nothing")
	}
}

func TestFilterNotAttached(t *testing.T) {
	b := newFilterBed(t)
	path := b.file("c.toml", onFt0)
	b.expect(0, "", "attach", "-c", path, "ft0", "ft1")
	b.filter(0, "", "add --name both -i ft0 -i ft1 count")
	b.filter(0, "count -i ft0 -i ft1\n", "list")
	b.expect(0, "taken off ft1", "attach", "-c", path, "ft0")
	b.filter(0, "count -i ft0 -i ft1  (not attached: ft1)\n", "list")
	b.filter(0, "\"not_attached\":[\"ft1\"]", "list -j")
}

// pcapOf writes frames into a pcap file.
func (b *filterBed) pcapOf(frames ...[]byte) string {
	b.t.Helper()
	var buf bytes.Buffer
	w := pcapgo.NewWriter(&buf)
	must(w.WriteFileHeader(65535, layers.LinkTypeEthernet))
	for n, f := range frames {
		must(w.WritePacket(gopacket.CaptureInfo{
			Timestamp: time.Unix(1700000000, int64(n)*1e6), CaptureLength: len(f), Length: len(f),
		}, f))
	}
	return b.file("t.pcap", buf.String())
}

func TestFilterTestCommand(t *testing.T) {
	b := newFilterBed(t)
	path := b.pcapOf(frame("198.51.100.7", 0), frame("198.51.100.7", 53), frame("203.0.113.9", 54))
	const first = "    1    0.000000  drop  rule              198.51.100.7 > 192.0.2.1 icmp echo-request, 60 bytes\n"
	b.filter(0, first, "test "+path+" drop icmp")
	b.filter(0, "3 packets: 1 dropped, 2 passed\n  rule  1  drop icmp\n", "test "+path+" drop icmp")
	b.filter(1, "no data plane in this network namespace", "test "+path)
	b.filter(1, "no data plane in this network namespace", "test --src @bad "+path+" drop")
	b.filter(1, "it is no pcap or pcapng file", "test "+b.file("x", "x")+" drop icmp")
	b.filter(1, "reading /nonexistent: no such file", "test /nonexistent drop icmp")
	b.filter(2, "use --all", "test "+path+" drop")
	stub := b.pcapOf(frame("198.51.100.7", 0)[:13], frame("198.51.100.7", 0))
	b.filter(0, "pass  -                 13 bytes, no Ethernet frame  (ends before a byte that a rule reads)\n", "test "+stub+" drop icmp")
	b.filter(0, "2 packets: 1 dropped, 1 passed\n", "test "+stub+" drop icmp")
	path = b.pcapOf(frame("198.51.100.7", 0), frame("198.51.100.7", 53), frame("203.0.113.9", 54))
	config := b.file("c.toml", onFt0+"[[filter.rule]]\nname = \"s\"\naction = \"drop\"\nsrc = \"@s\"\n"+
		"[[filter.set]]\nname = \"s\"\nentries = [\"203.0.113.0/24\"]\n")
	b.filter(0, "3 packets: 1 dropped, 2 passed\n  s  1  drop --src @s\n", "test -c "+config+" "+path)

	b.expect(0, "", "attach", "-c", config, "ft0")
	b.filter(0, "", "add --name dns -i ft0 drop udp port 53")
	b.filter(0, "3 packets: 1 dropped, 2 passed\n  s    1  drop --src @s\n  dns  0  ", "test "+path)
	var r struct {
		Packets []struct{ Verdict, Rule string }
		Totals  struct{ Packets, Dropped int }
	}
	if err := json.Unmarshal([]byte(b.filter(0, "", "test -j -i ft0 "+path)), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Packets) != 3 || r.Packets[1].Rule != "dns" || r.Packets[2].Rule != "s" || r.Totals.Dropped != 2 {
		t.Errorf("got %+v", r)
	}
	if got := b.report(); got.packets("s")+got.packets("dns") != 0 {
		t.Errorf("the running filter has counted: %+v", got)
	}
}

// keepSending sends a frame repeatedly.
func (b *filterBed) keepSending(f []byte) (stop func()) {
	done, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
				_ = unix.Sendto(b.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: b.peer.Index})
			}
		}
	}()
	return func() { close(done); <-ended }
}

func TestFilterTop(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	stop := b.keepSending(frame("198.51.100.7", 53))
	defer stop()
	b.filter(0, "  SRC           PACKETS/S  BITS/S   SHARE  ERROR\n  198.51.100.7", "top --once")
	var top struct {
		By      string
		Packets uint64
		Talkers []struct {
			Talker  string
			Packets uint64
		}
	}
	if err := json.Unmarshal([]byte(b.filter(0, "", "top --by port -j")), &top); err != nil {
		t.Fatal(err)
	}
	if top.By != "port" || len(top.Talkers) != 1 || top.Talkers[0].Talker != "udp 53" || top.Talkers[0].Packets != top.Packets {
		t.Errorf("got %+v", top)
	}
	b.filter(0, "\"on\":false", "list -j")

	// A process that is killed leaves the counting on.
	p := startCulvert(t, "filter", "top", "--by", "dst")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(b.filter(0, "", "list"), "  top --by dst is on\n") {
			break
		}
	}
	must(p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	b.filter(1, "another 'culvert filter top --by dst' is on: end that one, or say 'culvert filter top --off'", "top --once")
	b.filter(0, "", "top --off")
	b.filter(0, "no rules", "list")
	b.filter(0, "\"on\":false", "list -j")

	if _, _, stderr := culvert(t, "filter", "top", "--by", "bogus"); stderr != "culvert: usage: by \"bogus\": use src, dst, prefix or port\n" {
		t.Errorf("got %q", stderr)
	}
}

// TestFilterTopTwice has one process that turns the counting off while another still uses it.
func TestFilterTopTwice(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	stop := b.keepSending(frame("198.51.100.7", 53))
	defer stop()
	p := startCulvert(t, "filter", "top", "--by", "dst", "--once")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(b.filter(0, "", "list"), "  top --by dst is on\n") {
			break
		}
	}
	b.filter(0, "", "top --off")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the other one ends with %v", err)
	}
	b.filter(0, "\"on\":false", "list -j")
}

func TestFilterWatch(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0), "ft0")
	b.filter(0, "", "add --name seen count")
	b.filter(0, "", "add --name quiet count icmp")
	stop := b.keepSending(frame("198.51.100.7", 53))
	out := b.filter(0, "RULE", "watch -n 2 --interval 0.5")
	stop()
	if strings.Count(out, "seen") != 2 || strings.Contains(out, "quiet") {
		t.Errorf("got\n%s", out)
	}
	b.filter(2, "use 100ms or more", "watch -n 1 --interval 0.01")
}

func TestFilterServiceCommands(t *testing.T) {
	b := newFilterBed(t)
	b.expect(0, "", "attach", "-c", b.file("c.toml", onFt0+"[[filter.protect]]\naddress = \"192.0.2.7:443\"\nforwarded = true\nmss = 1440\n"), "ft0")
	b.filter(0, "192.0.2.1:80 is protected", "protect 192.0.2.1:80")
	b.filter(0, "[2001:db8::1]:80 is protected", "protect [2001:db8::1]:80 --forwarded --wscale 7")
	b.filter(1, "192.0.2.7:443 is protected by the configuration file: change it there", "protect 192.0.2.7:443")
	b.filter(2, "--mss is for a service on another host", "protect 192.0.2.1:81 --mss 1440")
	b.filter(2, "--mss 100: use 536 to 65535", "protect 192.0.2.1:81 --mss 100 --forwarded")
	b.filter(2, `"192.0.2.1" is no address with a port`, "protect 192.0.2.1")
	b.filter(0, "  protect 192.0.2.7:443 --forwarded --mss 1440  from file\n", "list")
	b.filter(0, "192.0.2.1:80 is not protected any more\n", "unprotect 192.0.2.1:80")
	if r := b.report(); len(r.Services) != 2 || r.Services[1].Address != netip.MustParseAddrPort("[2001:db8::1]:80").String() {
		t.Errorf("got %+v", r)
	}
}
