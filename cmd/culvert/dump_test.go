// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dump runs 'culvert STAGE dump' with a line of more arguments. It returns the dump, and the warnings, which have to be in it too.
func (b *lbBed) dump(line string) (text, warnings string) {
	b.t.Helper()
	args := strings.Fields(line)
	status, text, warnings := culvert(b.t, append([]string{args[0], "dump"}, args[1:]...)...)
	if status != 0 {
		b.t.Fatalf("culvert %s: status %d, %s", line, status, warnings)
	}
	for warning := range strings.Lines(warnings) {
		if !strings.HasPrefix(warning, "warning: ") || !strings.Contains(text, "# "+warning) {
			b.t.Errorf("%s: %q is no warning, or not in\n%s", line, warning, text)
		}
	}
	return text, warnings
}

// both returns a file with all of the filter and the load balancer.
func (b *lbBed) both() string {
	b.t.Helper()
	filter, _ := b.dump("filter")
	lb, _ := b.dump("lb --tables")
	return filter + lb
}

var (
	leftTime = regexp.MustCompile(` timeout (9h|8h5)[^']*'`)
	counted  = regexp.MustCompile(`"(packets|bytes|used|memory_bytes|netns)":\d+`)
)

// withoutLive returns a dump or JSON without what goes on by itself.
func withoutLive(text string) string {
	text = leftTime.ReplaceAllString(text, " timeout about 9h'")
	return counted.ReplaceAllString(strings.ReplaceAll(text, `"from":"hand"`, `"from":"file"`), `"$1":0`)
}

const dumpBed = `name = "dumped"
interfaces = ["lb0", "out0"]
[filter]
[lb]
ring_size = 1021
flows = 2048
insert_rate = 1000
vips = 8
backends = 100
source4 = "10.200.0.0/16"
source6 = "fd00:200::/64"
tcp_timeout = "90m"
udp_timeout = "90s"
syn_timeout = "10s"
unclaimed = "drop"
`

// TestDumpAgain makes a filter and a load balancer by hand with everything that they can have. The dump is accepted, also beside
// what runs, and starts a data plane of which the dump and the views are the same.
func TestDumpAgain(t *testing.T) {
	b := newLBBed(t)
	b.expect(1, "no data plane in this network namespace", "filter", "dump")
	b.expect(1, "no load balancer in this network namespace", "lb", "dump")
	b.expect(0, "", "attach", "-c", b.file(dumpBed))
	do := func(line string, more ...string) {
		t.Helper()
		b.expect(0, "", append(strings.Fields(line), more...)...)
	}
	program := filepath.Join(b.dir, "program")
	must(os.WriteFile(program, []byte("4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n"), 0o600))
	do("filter set add bad 192.0.2.0/24 198.51.100.5-198.51.100.9 2001:db8::/32 ::1")
	do("filter set add times 203.0.113.7 --timeout 9h")
	do("filter set add times 203.0.113.8")
	do("filter set add ends --type endpoint 192.0.2.53:53 [2001:db8::1]:53")
	do("filter set add none 203.0.113.9")
	do("filter set del none 203.0.113.9")
	do("filter add --name a --src @bad --src !@times --dst @ends -i lb0 -i out0 drop", "udp  or (vlan 5 and host 192.0.2.1)")
	do("filter add --name b --all pass")
	do("filter add --name c count -f " + program)
	do("filter add --name quoted count", `ether[0] = 1 and ip6[40:2] & 0xff00 != 0x3a00 or ether proto \arp`)
	for n, limit := range []string{
		"1pps", "1234567/s --burst 1", "10kpps --per src", "1.5Mpps --per dst --entries 70000", "500kB/s --per src/24 --burst 64kB",
		"1234567B/s --per dst/64 --burst 1000000B", "10Mbit/s --per src/24,48", "8bit/s --per dst/32,48 --burst 1514",
	} {
		do(fmt.Sprintf("filter add --name limit%d limit %s udp", n, limit))
	}
	do("filter add --first --name first count icmp")
	do("filter protect 192.0.2.80:443 --forwarded --mss 1400 --wscale 5")
	do("filter protect [2001:db8::80]:443 --forwarded")
	do("filter protect 10.0.0.1:22")

	do("lb vip add 192.0.2.1:80/tcp --check http --check-path /health --check-host www --check-status 200-299 --check-port 8080")
	do("lb backend add 192.0.2.1:80/tcp 10.0.0.12 --weight 3")
	do("lb backend add 192.0.2.1:80/tcp 10.0.0.11 --encap l2 --weight 65535")
	do("lb backend add 192.0.2.1:80/tcp fd00::11 --encap gue --gue-port 7000")
	do("lb vip add [2001:db8::1]:443/udp --hash source-port --on-failure move --encap gue --quic-server-id 2 --quic-config 1 --vlans 200,100")
	do("lb backend add [2001:db8::1]:443/udp 10.0.0.13 --server-id 0102 --weight 0")
	do("lb vip add 192.0.2.3/tcp --hash source --check tcp --check-port 22 --check-interval 90s --check-timeout 250ms --check-rise 3 --check-fall 7 --check-send",
		"PI\"N'G \\ \r\n\x01ü", "--check-expect", "+")
	do("lb backend add 192.0.2.3/tcp 10.0.0.12")
	do("lb vip add 192.0.2.4:53/udp --check https --encap l2")

	made := b.both()
	path := b.file(made)
	b.expect(0, "filter (13 rules, 4 sets, 10 entries, 3 protected services), lb (4 VIPs, 5 backends)", "check", "-c", path)
	list, show := b.expect(0, "", "filter", "list", "-j"), b.expect(0, "", "lb", "show", "-j")
	do("detach --all")
	b.expect(0, "filter (13 rules,", "check", "-c", path)
	b.expect(0, "", "attach", "-c", path)
	for _, same := range []struct{ what, got, want string }{
		{"dump", b.both(), made},
		{"filter list -j", b.expect(0, "", "filter", "list", "-j"), list},
		{"lb show -j", b.expect(0, "", "lb", "show", "-j"), show},
	} {
		if got, want := withoutLive(same.got), withoutLive(same.want); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", same.what, got, want)
		}
	}
	if text, warnings := b.dump("filter --by-hand"); strings.Contains(text, "[filter") || !strings.Contains(text, "Nothing was.") || !strings.Contains(warnings, "first") {
		t.Errorf("all is the file's, and by hand is\n%s%s", text, warnings)
	}

	// Entries in files, which are replaced as a whole.
	dir := filepath.Join(b.dir, "sets")
	inFiles, _ := b.dump("filter --tables --sets " + dir)
	if !strings.Contains(inFiles, "file = '"+dir+"/bad.set'") || strings.Contains(inFiles, "entries = [") || strings.Contains(inFiles, "none.set") {
		t.Errorf("got\n%s", inFiles)
	}
	lb, _ := b.dump("lb")
	b.expect(0, "filter (13 rules, 4 sets, 10 entries,", "check", "-c", b.file(lb+inFiles))
	b.expect(0, "", "attach", "-c", filepath.Join(b.dir, "c.toml"))
	if got := b.both(); withoutLive(got) != withoutLive(made) {
		t.Errorf("from files: got\n%s\nwant\n%s", got, made)
	}
	must(os.Mkdir(filepath.Join(dir, "times.new"), 0o755))
	must(os.Remove(filepath.Join(dir, "times.set")))
	must(os.Rename(filepath.Join(dir, "times.new"), filepath.Join(dir, "times.set")))
	before, err := os.Stat(filepath.Join(dir, "bad.set"))
	must(err)
	b.expect(1, "writing the entries of set times: "+dir+"/times.set is there already, and is no file", "filter", "dump", "--sets", dir)
	after, err := os.Stat(filepath.Join(dir, "bad.set"))
	must(err)
	all, err := filepath.Glob(filepath.Join(dir, ".*"))
	must(err)
	if !os.SameFile(before, after) || len(all) > 0 {
		t.Errorf("a dump that was refused has left %v, or replaced a file", all)
	}
	b.expect(1, "a directory for the entries of sets", "filter", "dump", "--sets", path)

	b.expect(0, "", "attach", "-c", b.file("name = \"other\"\ninterfaces = [\"lb1\"]\n[route]\n"))
	b.expect(2, "there are 2 data planes in this network namespace: use --on with one of dumped, other", "filter", "dump")
	b.expect(1, "data plane other is no load balancer", "lb", "dump", "--on", "other")
	if text, warnings := b.dump("filter --on other"); !strings.HasSuffix(text, "name = 'other'\ninterfaces = ['lb1']\n\n[filter]\n") ||
		!strings.Contains(warnings, "[route]") {
		t.Errorf("a filter that is off is\n%s%s", text, warnings)
	}
	b.expect(2, "prints no JSON", "filter", "dump", "-j")
}

// TestDumpByHand adds to what is in a file. The dump of that is a drop-in, which is accepted beside what runs, and says what it cannot
// express.
func TestDumpByHand(t *testing.T) {
	b := newLBBed(t)
	const file = "interfaces = ['lb0', 'out0']\n[filter]\n[[filter.rule]]\nname = 'f'\naction = 'count'\nsrc = '@s'\n[[filter.set]]\nname = 's'\n" +
		"[lb]\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\n"
	path := b.file(file)
	b.expect(0, "", "attach", "-c", path)
	do := func(line string) {
		t.Helper()
		b.expect(0, "", strings.Fields(line)...)
	}
	do("filter set add s 203.0.113.9")
	do("filter set add h 203.0.113.10")
	do("filter add --name front --first --src @h drop")
	do("filter add --name behind --src @s -i lb0 -i out0 count")
	do("filter add --name named -i out0 count")
	do("lb vip add 192.0.2.2:80/tcp")
	do("lb backend add 192.0.2.2:80/tcp 10.0.0.12 --weight 7")
	do("lb backend add 192.0.2.2:80/tcp 10.0.0.13")
	do("lb drain 192.0.2.2:80/tcp")
	do("lb drain 192.0.2.2:80/tcp 10.0.0.12")
	do("lb backend add 192.0.2.1:80/tcp 10.0.0.13")
	do("lb drain 192.0.2.1:80/tcp 10.0.0.11")

	warned := func(warnings string, want ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSuffix(warnings, "\n"), "\n")
		for _, w := range want {
			if !strings.Contains(warnings, w) {
				t.Errorf("%q is not among\n%s", w, warnings)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("%d warnings, want %d:\n%s", len(lines), len(want), warnings)
		}
	}
	filter, warnings := b.dump("filter --by-hand")
	warned(warnings, "in front of rules of the file: front:", "rules of the file are left out", "sets of the file are left out, with all entries that were added by hand: s:")
	lb, warnings := b.dump("lb --by-hand")
	warned(warnings, "VIP 192.0.2.1:80/tcp is the file's: its backend 10.0.0.13, made by hand, is left out",
		"backend 10.0.0.11 of VIP 192.0.2.1:80/tcp is drained, which no file can say: after the start, culvert lb drain 192.0.2.1:80/tcp 10.0.0.11",
		"VIP 192.0.2.2:80/tcp is drained, which no file can say", "backend 10.0.0.12 of VIP 192.0.2.2:80/tcp is drained, which no file can say: here its weight is 0 in place of 7",
		"VIPs of the file are left out")
	for _, want := range []string{"# drained by hand\n[[lb.vip]]\naddress = '192.0.2.2:80'\n", "# drained by hand: its weight was 7\n[[lb.vip.backend]]\naddress = '10.0.0.12'\nweight = 0\n"} {
		if !strings.Contains(lb, want) || strings.Contains(lb, "192.0.2.1:80'") {
			t.Errorf("%q is not in\n%s", want, lb)
		}
	}
	dropIns := filepath.Join(b.dir, "c.d")
	must(os.Mkdir(dropIns, 0o755))
	must(os.WriteFile(filepath.Join(dropIns, "filter.toml"), []byte(filter), 0o600))
	must(os.WriteFile(filepath.Join(dropIns, "lb.toml"), []byte(lb), 0o600))
	b.expect(0, "filter (4 rules, 2 sets, 1 entry), lb (2 VIPs, 3 backends)", "check", "-c", path)
	do("attach -c " + path)
	b.expect(0, "front         0     0B        file", "filter", "list")
	if r := b.backend("192.0.2.2:80/tcp", "10.0.0.12"); !r.File || !r.Drained || r.Weight != 0 {
		t.Errorf("got %+v", r)
	}
	if text, _ := b.dump("filter --by-hand"); strings.Contains(text, "[[") || !strings.Contains(text, "Nothing was.") {
		t.Errorf("got\n%s", text)
	}

	// No file can name an interface for rules that the data plane is not on.
	must(os.RemoveAll(dropIns))
	do("attach -c " + path)
	do("filter add --name both -i lb0 -i out0 count")
	do("filter add --name nowhere -i out0 count")
	do("attach -c " + b.file(strings.Replace(file, ", 'out0'", "", 1)))
	filter, warnings = b.dump("filter")
	warned(warnings, "rule both: the data plane is not on out0, and a file cannot name it: it is left out, so delete the rule",
		"rule nowhere: the data plane is not on out0, and a file cannot name it: the rule, which matches nowhere, is a comment", "[lb]")
	if !strings.Contains(filter, "# not on out0\n[[filter.rule]]\nname = 'both'\naction = 'count'\ninterfaces = ['lb0']\n") ||
		!strings.Contains(filter, "# not on out0\n# [[filter.rule]]\n# name = 'nowhere'\n# action = 'count'\n# interfaces = ['out0']\n") {
		t.Errorf("got\n%s", filter)
	}
	do("detach --all")
	b.expect(0, "filter (2 rules, 1 set, 1 entry)", "check", "-c", b.file(filter))

	// Nobody can read the text of a seed in the data plane.
	do("attach -c " + b.file("interfaces = ['lb0']\n[lb]\nseed = 'x'\n"))
	_, warnings = b.dump("lb")
	warned(warnings, "the seed of the rings (ID ")
}
