// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/config"
	"culvert/internal/doctor"
	"culvert/internal/testbed"
	"culvert/internal/testbed/otherprocess"
)

// checkBed is a directory for files, in a namespace with interfaces ck0 and ck1, of which ck0 has 192.0.2.1.
func checkBed(t *testing.T) (dir string, write func(name, text string) string) {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "ck0", "ck1")
	testbed.IP(t, "addr add 192.0.2.1/24 dev ck0")
	testbed.IP(t, "link set lo up")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	return writeFiles(t)
}

const checkHead = "interfaces = [\"ck0\"]\n"

// texts returns errors without the directory of the files.
func texts(dir string, all []error) (list []string) {
	for _, err := range all {
		list = append(list, strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	return list
}

// wantTexts wants errors that begin with the given texts, in this order.
func wantTexts(t *testing.T, what, dir string, got []error, want []string) {
	t.Helper()
	list := texts(dir, got)
	ok := len(list) == len(want)
	for n := range list {
		ok = ok && strings.HasPrefix(list[n], want[n]) && !strings.Contains(list[n], "\n")
	}
	if !ok {
		t.Errorf("%s\n%s\nwant\n%s", what, strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}

// TestCheckErrors wants all errors of each file, with their positions, in one look.
func TestCheckErrors(t *testing.T) {
	dir, write := checkBed(t)
	write("expression.txt", "udp prot 53\n")
	write("good.txt", "192.0.2.7\n")
	write("bad.txt", "192.0.2.7\n\n192.0.2.x # a host\n")
	write("open.secret", "s3cret\n")
	if err := os.Chmod(filepath.Join(dir, "open.secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	const bgp = "[lb]\nseed = \"x\"\n[lb.bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n[[lb.bgp.neighbor]]\naddress = \"192.0.2.9\"\nasn = 65000\n"
	for _, tt := range []struct {
		name, text    string
		errors, notes []string
	}{
		{"nothing wrong", checkHead + "[route]\n", nil, nil},
		{"no TOML", "interfaces = [\n", []string{"DIR/no-TOML.toml:"}, nil},
		{"an interface that is gone", "interfaces = [\"ck0\", \"ck7\"]\n[filter]\n", nil,
			[]string{"DIR/an-interface-that-is-gone.toml:1:22: interface ck7 does not exist yet: the data plane attaches to it when it does"}},
		{"names that no interface can have", "interfaces = [\n  \"an-interface-with-long-name\",\n  \"a/b\", \"..\",\n  \"a b\", \"ck0:1\", \"\",\n  \"fifteen-letters\",\n]\n[filter]\n", []string{
			"DIR/names-that-no-interface-can-have.toml:2:3: no interface can be named \"an-interface-with-long-name\": it has 27 bytes, and the kernel takes at most 15",
			"DIR/names-that-no-interface-can-have.toml:3:3: no interface can be named \"a/b\": the kernel takes no '/' in it",
			"DIR/names-that-no-interface-can-have.toml:3:10: no interface can be named \"..\"",
			"DIR/names-that-no-interface-can-have.toml:4:3: no interface can be named \"a b\": the kernel takes no blanks in it",
			"DIR/names-that-no-interface-can-have.toml:4:10: no interface can be named \"ck0:1\": the kernel takes no ':' in it",
			"DIR/names-that-no-interface-can-have.toml:4:19: interfaces has an empty name: leave it out"},
			[]string{"DIR/names-that-no-interface-can-have.toml:5:3: interface fifteen-letters does not exist yet"}},
		{"names that look like mistakes", "interfaces = [\"ck*\", \"ck0@if2\"]\n[filter]\n", nil, []string{
			"DIR/names-that-look-like-mistakes.toml:1:15: interface ck* does not exist, and names are no patterns: name each interface",
			"DIR/names-that-look-like-mistakes.toml:1:22: interface ck0@if2 does not exist: 'ip link' shows what is below or behind an interface after the @, write ck0"}},
		{"a CPU too high", checkHead + "[workers]\ncpus = [4095]\n[route]\n", []string{
			"DIR/a-CPU-too-high.toml:3:1: workers.cpus: CPU 4095 is not online: there are "}, nil},
		{"a CPU twice", checkHead + "[workers]\ncpus = [0, 0]\n[route]\n", []string{
			"DIR/a-CPU-twice.toml:3:1: workers.cpus: CPU 0 is given twice"}, nil},
		{"a queue too long", checkHead + "[workers]\ncpus = [0]\nqueue = 20000\n[route]\n", []string{
			"DIR/a-queue-too-long.toml:4:9: workers.queue = 20000: use 1 to 16384 packets"}, nil},
		{"workers beside a stage with errors", checkHead + "[workers]\ncpus = [0]\n[route]\nblocks4 = -1\n", []string{
			"DIR/workers-beside-a-stage-with-errors.toml:5:11: "}, nil},
		{"workers beside a stage with errors in a dotted key", "route.blocks4 = -1\n" + checkHead + "[workers]\ncpus = [0]\n", []string{
			"DIR/workers-beside-a-stage-with-errors-in-a-dotted-key.toml:1:17: "}, nil},
		{"interfaces that are gone and needed", "missing = \"refuse\"\ninterfaces = [\n  \"ck8\",\n  \"ck0\",\n  \"ck7\",\n]\n[route]\n", []string{
			"DIR/interfaces-that-are-gone-and-needed.toml:3:3: interface ck8 does not exist: see 'ip link'",
			"DIR/interfaces-that-are-gone-and-needed.toml:5:3: interface ck7 does not exist: see 'ip link'"}, nil},
		{"an interface without native XDP", "interfaces = [\"lo\"]\n[filter]\n", []string{
			"DIR/an-interface-without-native-XDP.toml:1:15: lo does not run XDP in its driver"}, nil},
		{"the same in generic mode", "mode = \"generic\"\ninterfaces = [\"lo\"]\n[filter]\n", nil, nil},
		{"sets and expressions", checkHead + `[[filter.rule]]
name = "one"
action = "drop"
expression = "tcp prot 80"
[[filter.rule]]
name = "two"
action = "drop"
program = "expression.txt"
[[filter.rule]]
name = "three"
action = "count"
interfaces = "ck9"
[[filter.set]]
name = "bad"
file = "bad.txt"
[[filter.set]]
name = "gone"
file = "gone.txt"
[[filter.set]]
name = "good"
file = "good.txt"
`, []string{
			"DIR/sets-and-expressions.toml:5:14: rule one: compile \"tcp prot 80\"",
			"DIR/sets-and-expressions.toml:9:11: rule two: DIR/expression.txt: ",
			"DIR/sets-and-expressions.toml:13:14: rule three: the data plane is to be on ck0, not on ck9",
			"DIR/sets-and-expressions.toml:16:8: set bad: DIR/bad.txt:3: \"192.0.2.x\" is no address",
			"DIR/sets-and-expressions.toml:19:8: set gone: reading DIR/gone.txt: no such file or directory"}, nil},
		{"all of a balancer", checkHead + `[lb]
seed = "x"
ring_size = 4
[[lb.vip]]
address = "192.0.2.7:80"
protocol = "icmp"
[[lb.vip]]
address = "192.0.2.8:80"
protocol = "tcp"
[[lb.vip.backend]]
address = "10.0.0.11:80"
[[lb.vip.backend]]
address = "10.0.0.12"
weight = -1
[[lb.vip]]
protocol = "tcp"
`, []string{
			"DIR/all-of-a-balancer.toml:4:13: ring_size = 4: use a prime",
			"DIR/all-of-a-balancer.toml:7:12: VIP 192.0.2.7:80: \"icmp\" is no protocol",
			"DIR/all-of-a-balancer.toml:12:11: VIP 192.0.2.8:80/tcp: \"10.0.0.11:80\" is no address of a backend",
			"DIR/all-of-a-balancer.toml:15:10: VIP 192.0.2.8:80/tcp: backend 10.0.0.12: weight -1",
			"DIR/all-of-a-balancer.toml:16:3: address is missing"}, nil},
		{"stages that contradict each other", checkHead + `[lb]
seed = "x"
[[lb.vip]]
address = "192.0.2.7:80"
protocol = "tcp"
[[filter.protect]]
address = "192.0.2.7:80"
[[filter.protect]]
address = "192.0.2.99:80"
forwarded = true
[route]
`, []string{
			"DIR/stages-that-contradict-each-other.toml:8:11: 192.0.2.7:80 cannot be protected by SYN cookies and be VIP",
			"DIR/stages-that-contradict-each-other.toml:10:11: 192.0.2.99:80 cannot be protected as a forwarded service"},
			[]string{"DIR/stages-that-contradict-each-other.toml:8:11: this host does not have the address of protected service 192.0.2.7:80"}},
		{"a password that anyone may read", checkHead + bgp + "password_file = \"open.secret\"\n", []string{
			"DIR/a-password-that-anyone-may-read.toml:10:17: neighbor 192.0.2.9: reading the password: others than its owner may use DIR/open.secret (mode 0644)"}, nil},
		{"a local address elsewhere", checkHead + bgp + "local_address = \"192.0.2.3\"\n", nil, []string{
			"DIR/a-local-address-elsewhere.toml:10:17: neighbor 192.0.2.9: this host does not have local_address 192.0.2.3"}},
		{"page elsewhere", checkHead + "[web]\nlisten = \"192.0.2.3:9480\"\n[route]\n",
			[]string{"DIR/page-elsewhere.toml:3:10: serving the page on 192.0.2.3:9480: this host does not have the address 192.0.2.3"}, nil},
		{"page nowhere", checkHead + "[web]\nlisten = \"nonsense\"\n[route]\n",
			[]string{"DIR/page-nowhere.toml:3:10: listen = \"nonsense\": use address:port"}, nil},
		{"metrics elsewhere, and workers for nothing", "metrics = \"192.0.2.3:9441\"\n" + checkHead + "[workers]\ncpus = [0]\n[filter]\n",
			[]string{"DIR/metrics-elsewhere,-and-workers-for-nothing.toml:1:11: serving metrics on 192.0.2.3:9441: this host does not have the address 192.0.2.3"},
			[]string{"DIR/metrics-elsewhere,-and-workers-for-nothing.toml:3:2: [workers] has no effect"}},
		{"no SCION router", "[scion]\nconfig = \"none.toml\"\n[filter]\n[[filter.rule]]\nname = \"x\"\naction = \"drop\"\n", []string{
			"DIR/no-SCION-router.toml:6:10: rule x: the rule would drop every packet", "reading DIR/none.toml: no such file or directory"}, nil},
	} {
		// A test of its own would run on a thread in another namespace.
		c := Check(write(strings.ReplaceAll(tt.name, " ", "-")+".toml", tt.text))
		wantTexts(t, tt.name+": errors", dir, c.Errors(), tt.errors)
		wantTexts(t, tt.name+": notes", dir, c.Notes, tt.notes)
		if len(c.Unchecked) > 0 {
			t.Errorf("%s: not checked: %q", tt.name, c.Unchecked)
		}
	}
}

// TestCheckMillion has a set with a million entries, one of which is wrong.
func TestCheckMillion(t *testing.T) {
	dir, write := checkBed(t)
	var b bytes.Buffer
	for n := range 1_000_000 {
		fmt.Fprintf(&b, "10.%d.%d.%d\n", n>>15, n>>7&255, n<<1&255)
	}
	path := write("million.toml", checkHead+"[[filter.set]]\nname = \"many\"\nfile = \"many.txt\"\n")
	write("many.txt", b.String())
	c := Check(path)
	if got, want := c.summary(), path+": ok: culvert on ck0: filter (1 set, 1,000,000 entries)"; len(c.Errors()) > 0 || got != want {
		t.Errorf("%q, errors %q, want %q", got, c.Errors(), want)
	}
	write("many.txt", strings.Replace(b.String(), "10.15.66.64\n", "10.15.66.640\n", 1))
	wantTexts(t, "errors", dir, Check(path).Errors(), []string{"DIR/million.toml:4:8: set many: DIR/many.txt:500001: \"10.15.66.640\" is no address"})
}

// TestCheckAddressInUse has another process listen where the file wants its metrics and its page.
func TestCheckAddressInUse(t *testing.T) {
	dir, write := checkBed(t)
	pid, _, _ := otherprocess.Hold(t, "tcp", "192.0.2.1:9441")
	path := write("used.toml", checkHead+"metrics = \"192.0.2.1:9441\"\n[filter]\n")
	wantTexts(t, "errors", dir, Check(path).Errors(), []string{
		fmt.Sprintf("DIR/used.toml:2:11: serving metrics on 192.0.2.1:9441: 192.0.2.1:9441 is in use by node.test (process %d)", pid)})
	page := write("page.toml", checkHead+"[web]\nlisten = \"192.0.2.1:9441\"\n[filter]\n")
	wantTexts(t, "errors", dir, Check(page).Errors(), []string{
		fmt.Sprintf("DIR/page.toml:3:10: serving the page on 192.0.2.1:9441: 192.0.2.1:9441 is in use by node.test (process %d)", pid)})
}

// TestCheckNetfilter has a rule that forwarded packets would go past.
func TestCheckNetfilter(t *testing.T) {
	dir, write := checkBed(t)
	for _, line := range []string{"qdisc add dev ck0 clsact", "filter add dev ck0 ingress protocol ip u32 match u32 0 0 flowid 1:1"} {
		if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", line, err, out)
		}
	}
	wantTexts(t, "errors", dir, Check(write("r.toml", checkHead+"[route]\n")).Errors(),
		[]string{"DIR/r.toml:2:2: forwarded packets would not pass tc ingress on ck0 (1 filter)"})
	wantTexts(t, "errors", dir, Check(write("r.toml", checkHead+"[route]\nbypass_netfilter = true\n")).Errors(), nil)
}

// TestCheckSCION has a SCION router's own files: addresses that the host lacks, sockets in use, keys.
func TestCheckSCION(t *testing.T) {
	dir, write := checkBed(t)
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	key := base64.StdEncoding.EncodeToString(make([]byte, 16))
	write("keys/master0.key", key)
	write("keys/master1.key", key)
	writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	path := write("c.toml", "[scion]\nconfig = \"br.toml\"\n")
	c := Check(path)
	wantTexts(t, "errors", dir, c.Errors(), nil)
	if got, want := c.summary(), path+": ok: br1 on ck0: scion (1 link)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	wantTexts(t, "notes", dir, c.Notes, nil)

	gone := write("gone.toml", "interfaces = [\"ck0\", \"ck7\"]\n[scion]\nconfig = \"br.toml\"\n[filter]\n")
	c = Check(gone)
	wantTexts(t, "an interface that is gone", dir, c.Errors(), []string{"DIR/gone.toml:1:22: interface ck7 does not exist: see 'ip link'"})
	wantTexts(t, "notes on it", dir, c.Notes, nil)

	if err := os.Chmod(filepath.Join(dir, "keys/master0.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := "DIR/keys/master0.key: master key: others than its owner may use DIR/keys/master0.key (mode 0644): chmod 0600 DIR/keys/master0.key"
	wantTexts(t, "errors", dir, Check(path).Errors(), []string{open})
	if err := DoctorOptions(path, &doctor.Options{}); err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != open {
		t.Errorf("doctor: %v, want %s", err, open)
	}
	if err := os.Chmod(filepath.Join(dir, "keys/master0.key"), 0o600); err != nil {
		t.Fatal(err)
	}

	write("next.key", base64.StdEncoding.EncodeToString([]byte("sixteen bytes...")))
	scheduled := "[scion]\nconfig = \"br.toml\"\n[[scion.key]]\nfile = \"keys/master0.key\"\nnot_after = 2038-01-01T00:00:00Z\n" +
		"[[scion.key]]\nfile = \"next.key\"\nnot_before = "
	wantTexts(t, "errors", dir, Check(write("s.toml", scheduled+"2037-12-01T00:00:00Z\n")).Errors(), nil)
	gap := "DIR/s.toml:8:14: key DIR/next.key: no key would be valid from 2038-01-01T00:00:00Z until 2038-02-01T00:00:00Z: begin this one earlier, before the other ends"
	bad := write("s.toml", scheduled+"2038-02-01T00:00:00Z\n")
	wantTexts(t, "errors", dir, Check(bad).Errors(), []string{gap})
	if err := DoctorOptions(bad, &doctor.Options{}); err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != gap {
		t.Errorf("doctor: %v, want %s", err, gap)
	}

	write("br.toml", "[general]\nid = \"br1\"\nconfig_dir = \""+dir+"\"\n[metrics]\nprometheus = \"192.0.2.1:30442\"\n")
	wantTexts(t, "errors", dir, Check(write("w.toml", "[scion]\nconfig = \"br.toml\"\n[web]\nlisten = \"192.0.2.1:30442\"\n")).Errors(), []string{
		"DIR/w.toml:4:10: listen = \"192.0.2.1:30442\" is the address of metrics.prometheus = \"192.0.2.1:30442\" in DIR/br.toml: use another port"})

	used, err := net.ListenPacket("udp", "192.0.2.1:50000") // of this process, which does not count
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	wantTexts(t, "errors", dir, Check(path).Errors(), nil)

	if err := os.Remove(filepath.Join(dir, "keys/master1.key")); err != nil {
		t.Fatal(err)
	}
	write("br.toml", "[general]\nid = \"br1\"\nconfig_dir = \""+dir+"\"\n[metrics]\nprometheus = \"192.0.2.3:30442\"\n")
	writeTopology := func(local string) {
		t.Helper()
		toml, err := os.ReadFile(filepath.Join(dir, "br.toml"))
		if err != nil {
			t.Fatal(err)
		}
		writeRouter(dir, write, local, "198.51.100.2:50000")
		write("br.toml", string(toml))
	}
	writeTopology("198.51.100.1:50000")
	wantTexts(t, "errors", dir, Check(path).Errors(), []string{
		"DIR/br.toml:5:14: metrics.prometheus: this host does not have the address 192.0.2.3",
		"DIR/topology.json:3:17: border_routers.br1.interfaces.1.underlay.local: no network interface has the address 198.51.100.1",
		"reading DIR/keys/master1.key: no such file"})
}

// TestCheckTouchesNothing looks at files that a start would make pins, a lock, a seed and sockets for.
func TestCheckTouchesNothing(t *testing.T) {
	dir, write := checkBed(t)
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	key := base64.StdEncoding.EncodeToString(make([]byte, 16))
	write("keys/master0.key", key)
	write("keys/master1.key", key)
	writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	state := os.Getenv("STATE_DIRECTORY")
	seen := func() string {
		var b strings.Builder
		for _, root := range []string{"/sys/fs/bpf/culvert", "/run/culvert", state, dir} {
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil {
					info, _ := d.Info()
					fmt.Fprintln(&b, path, info.Mode(), info.ModTime())
				}
				return nil
			})
		}
		for _, name := range []string{"tcp", "tcp6", "udp", "udp6", "dev"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
		fmt.Fprintln(&b, "program", testbed.XDPProgram(t, "ck0"))
		return b.String()
	}
	balancer := write("lb.toml", checkHead+"metrics = \"127.0.0.1:9441\"\n[lb]\n"+
		"[[lb.vip]]\naddress = \"192.0.2.7:80\"\nprotocol = \"tcp\"\n[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n[filter]\n[route]\n")
	router := write("router.toml", "[scion]\nconfig = \"br.toml\"\n[lb]\n")
	before := seen()
	for _, path := range []string{balancer, router} {
		c := Check(path)
		wantTexts(t, "errors", dir, c.Errors(), nil)
		if after := seen(); after != before {
			t.Errorf("%s: after the check\n%s\nbefore\n%s", path, after, before)
		}
	}
}

// TestCheckRunning checks the file of a data plane that runs: it is not in its own way, but one of another name is.
func TestCheckRunning(t *testing.T) {
	dir, write := checkBed(t)
	path := write("c.toml", "name = \"node-check-test\"\n"+checkHead+"[filter]\n")
	var out bytes.Buffer
	if err := Attach(t.Context(), path, nil, &out); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Detach([]string{"ck0"}, &out) }()
	c := Check(path)
	wantTexts(t, "errors", dir, c.Errors(), nil)
	wantTexts(t, "notes", dir, c.Notes, nil)
	wantTexts(t, "errors", dir, Check(write("d.toml", "name = \"other\"\n"+checkHead+"[filter]\n")).Errors(),
		[]string{"DIR/d.toml:2:15: interface ck0 carries XDP program "})
	wantTexts(t, "errors", dir, Check(write("d.toml", "mode = \"generic\"\nname = \"node-check-test\"\n"+checkHead+"[filter]\n")).Errors(),
		[]string{"DIR/d.toml:1:8: data plane node-check-test is attached in native mode"})
	if errs := config.All(Attach(t.Context(), filepath.Join(dir, "d.toml"), nil, &out)); len(errs) != 1 ||
		!strings.Contains(errs[0].Error(), "data plane node-check-test is attached in native mode") {
		t.Errorf("a start says %q", errs)
	}
}
