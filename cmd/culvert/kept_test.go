// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// keptBed is a load balancer on a host that can be a SCION router too. The router's only link is on lb0.
type keptBed struct {
	*lbBed
	router string // the SCION router's file
}

func newKeptBed(t *testing.T) keptBed {
	t.Helper()
	b := keptBed{lbBed: newLBBed(t)}
	loopback(t)
	l, err := netlink.LinkByName("lb0")
	must(err)
	addr, err := netlink.ParseAddr("198.51.100.1/24")
	must(err)
	must(netlink.AddrAdd(l, addr))
	b.write("topology.json", `{"isd_as": "1-ff00:0:110", "mtu": 1472, "border_routers": {"br1": {
		"internal_addr": "10.0.0.1:30042", "interfaces": {"1": {
			"underlay": {"local": "198.51.100.1:50000", "remote": "198.51.100.2:50000"},
			"isd_as": "1-ff00:0:111", "link_to": "child", "mtu": 1472}}}}}`)
	must(os.Mkdir(filepath.Join(b.dir, "keys"), 0o700))
	for _, name := range []string{"keys/master0.key", "keys/master1.key"} {
		b.write(name, base64.StdEncoding.EncodeToString(make([]byte, 16)))
	}
	b.router = b.write("br.toml", "[general]\nid = \"br1\"\nconfig_dir = \""+b.dir+"\"\n")
	return b
}

func (b keptBed) write(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// run starts culvert and waits until the load balancer has a VIP.
func (b keptBed) run(vip string, args ...string) *running {
	b.t.Helper()
	p := startCulvert(b.t, args...)
	p.waitFor(b.t, "Service started")
	b.lb(0, vip+"  ", "show")
	return p
}

// says returns how often a text is in the standard error of the process.
func (r *running) says(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.errs.String(), text)
}

const (
	keptHead  = "interfaces = ['lb0', 'out0']\n"
	keptSCION = keptHead + "[scion]\nconfig = 'br.toml'\n"
	keptVIPs  = "[lb]\nseed = 'culvert'\nring_size = 1009\nsource4 = '10.200.0.0/16'\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n" +
		"[[lb.vip.backend]]\naddress = '10.0.0.11'\n"
	keptRules = "[filter]\n[[filter.rule]]\nname = 'file'\naction = 'drop'\nexpression = 'udp port 7'\n"
)

// TestSCIONAfterMore runs a SCION router on a data plane that also had a load balancer and a filter. What the file had is removed,
// and the log says so. VIPs made by hand stay, with the settings of the load balancer.
func TestSCIONAfterMore(t *testing.T) {
	b := newKeptBed(t)
	p := b.run("192.0.2.1:80/tcp", "run", "-c", b.write("c.toml", keptSCION+keptVIPs+keptRules))
	if n := p.says("is one that everybody knows"); n != 1 {
		t.Errorf("the warning about the seed comes %d times: %s", n, &p.errs)
	}
	b.expect(0, "added", "filter", "add", "--name", "hand", "drop", "udp port 9")
	b.lb(0, "added", "vip add 192.0.2.2:80/tcp")
	b.lb(0, "added", "backend add 192.0.2.2:80/tcp 10.0.0.12")
	const source = "\"source\":\"10.200.0.0/16\""
	b.lb(0, source, "show 192.0.2.2:80/tcp -j")
	p.interrupt(t)

	p = b.run("192.0.2.2:80/tcp", "scion", "run", "--config", b.router)
	for _, text := range []string{"taken out of the load balancer\" gone=\"VIP 192.0.2.1:80/tcp\"", "taken out of the filter\" gone=\"rule file\""} {
		if p.says(text) != 1 {
			t.Errorf("the log does not say %q: %s", text, &p.errs)
		}
	}
	b.lb(0, source, "show 192.0.2.2:80/tcp -j")
	b.lb(1, "no VIP 192.0.2.1:80/tcp", "show 192.0.2.1:80/tcp")
	if _, out, _ := culvert(t, "filter", "list"); !strings.Contains(out, "hand") || strings.Contains(out, "file  ") {
		t.Errorf("the filter has\n%s", out)
	}
	b.wait("a packet to the backend", func() bool {
		b.send(netip.MustParseAddrPort("192.0.2.2:80"), 1)
		return b.arrived("10.0.0.12") > 0
	})
	p.interrupt(t)

	// The VIP made by hand is checked against the next file too.
	const both = "192.0.2.2:80 cannot be protected by SYN cookies and be VIP 192.0.2.2:80/tcp at once"
	file := b.write("c.toml", keptSCION+"[filter]\n[[filter.protect]]\naddress = '192.0.2.2:80'\n")
	for _, verb := range []string{"run", "doctor"} {
		b.expect(1, both, verb, "-c", file)
	}
	b.expect(1, "router br1 has VIPs made by hand", "attach", "-c", b.write("c.toml", keptSCION), "lb0", "out0")
	b.lb(0, "192.0.2.2:80/tcp  ", "show")
}

// TestSCIONUnserved ends the process of 'culvert scion run', which says that the data plane stays. status says what does not work
// without it, and a second process which one is there already.
func TestSCIONUnserved(t *testing.T) {
	b := newKeptBed(t)
	p := startCulvert(t, "scion", "run", "-c", b.router)
	p.waitFor(t, "Service started")
	b.expect(1, fmt.Sprintf("router br1 is served by process %d: stop that process first", p.cmd.Process.Pid), "scion", "run", "-c", b.router)
	p.interrupt(t)
	p.waitFor(t, "the process ends, and the data plane stays")
	b.expect(0, "  not served: BFD is not answered, so neighbors that use it take the links down, and there is no slow path\n", "status")
}

// TestSlowPathAlone detaches the data plane of a SCION router under its process, which goes on with its slow path. status and
// doctor say so.
func TestSlowPathAlone(t *testing.T) {
	b := newKeptBed(t)
	p := startCulvert(t, "run", "-c", b.write("c.toml", "detached = 'stay'\n"+keptSCION))
	p.waitFor(t, "Service started")
	b.expect(0, "detached", "detach", "--all")
	p.waitFor(t, "the slow path goes on alone")
	alone := fmt.Sprintf("not attached: process %d has no data plane, so all packets take its slow path: it is starting, all its underlay "+
		"addresses are on loopback, or the data plane was detached (a restart attaches again)\n", p.cmd.Process.Pid)
	for _, line := range [][]string{{"status"}, {"status", "--on", "br1"}} {
		b.expect(0, alone, line...)
	}
	b.expect(0, `"slow_path_only":[{"router":"br1",`, "status", "-j")
	if _, out, _ := culvert(t, "doctor"); !strings.Contains(out, fmt.Sprintf("process %d runs router br1 without a data plane, so all packets take the slow path", p.cmd.Process.Pid)) {
		t.Errorf("doctor says\n%s", out)
	}
	p.interrupt(t)
	b.expect(0, "culvert is not attached anywhere on this machine", "status")
}

// TestKeptSource removes [lb] from the file. VIPs made by hand keep the outer sources that the file had set.
func TestKeptSource(t *testing.T) {
	b := newKeptBed(t)
	b.expect(0, "attached", "attach", "-c", b.write("c.toml", keptHead+keptVIPs), "lb0", "out0")
	b.lb(0, "added", "vip add 192.0.2.2:80/tcp")
	b.lb(0, "added", "backend add 192.0.2.2:80/tcp 10.0.0.12")
	const source = "\"source\":\"10.200.0.0/16\""
	b.lb(0, source, "show -j")
	for range 2 {
		b.expect(0, "attached", "attach", "-c", b.write("c.toml", keptHead+"[filter]\n"), "lb0", "out0")
		b.lb(0, source, "show -j")
		if s := b.state(); s.Source4 != netip.MustParsePrefix("10.200.0.0/16") || len(s.VIPs) != 1 {
			t.Errorf("got %+v", s)
		}
	}
}

// TestFailedStartReport has a start that fails. Its messages name the cause, and do not claim that anything was removed.
func TestFailedStartReport(t *testing.T) {
	b := newKeptBed(t)
	served, other := b.write("c.toml", keptHead+keptVIPs), b.write("other.toml", keptHead+"[filter]\n")
	p := runAttached(t, served)
	b.expect(1, fmt.Sprintf("culvert: data plane culvert is served by process %d: stop that process first", p.cmd.Process.Pid), "run", "-c", other)
	b.expect(0, "'culvert reload' brings the file into force there", "check", "-c", served)
	b.expect(0, "'culvert reload' has it read "+served, "check", "-c", other)
	b.lb(0, "192.0.2.1:80/tcp  ", "show")
	p.interrupt(t)
	b.expect(0, "detached", "detach", "--all")

	p = b.run("192.0.2.1:80/tcp", "run", "-c", b.write("c.toml", keptSCION+keptVIPs))
	b.lb(0, "added", "backend add 192.0.2.1:80/tcp 10.0.0.12")
	p.interrupt(t)
	file := b.write("c.toml", keptSCION)
	b.expect(1, "it was made by hand, and the file has the VIP no more", "attach", "-c", file, "lb0", "out0")
	if _, _, errs := culvert(t, "attach", "-c", file, "lb0", "out0"); strings.Contains(errs, "has VIPs made by hand") {
		t.Errorf("not the reason: %s", errs)
	}
}

// TestOtherPinsUntrusted has a directory of pins that everybody may write to. If it belongs to another network namespace, a start
// still finds what was made by hand. If it belongs to this one, the start fails.
func TestOtherPinsUntrusted(t *testing.T) {
	const script = `set -e
		ip link set lo up
		ip link add lb0 type veth peer name lb1
		ip link add out0 type veth peer name out1
		ip link set lb0 up; ip link set out0 up
		mount -t bpf -o mode=0700 bpf /sys/fs/bpf
		printf "$WITH" >$DIR/with.toml
		printf "interfaces = ['lb0', 'out0']\n[filter]\n" >$DIR/without.toml
		"$CULVERT" attach -c $DIR/with.toml lb0 out0
		"$CULVERT" lb vip add 192.0.2.2:80/tcp
		mkdir -p /sys/fs/bpf/culvert/7/other
		chmod 0777 /sys/fs/bpf/culvert/7 /sys/fs/bpf/culvert/7/other
		echo "== attach"
		"$CULVERT" attach -c $DIR/without.toml lb0 out0 2>&1
		rmdir /sys/fs/bpf/culvert/7/other /sys/fs/bpf/culvert/7
		echo "== show"
		"$CULVERT" lb show
		here=/sys/fs/bpf/culvert/$(stat -L -c %i /proc/self/ns/net)
		chmod 0777 $here
		echo "== refused"
		"$CULVERT" attach -c $DIR/without.toml lb0 out0 2>&1 && exit 1
		chmod 0700 $here
		echo "== after"
		"$CULVERT" lb show
		"$CULVERT" detach --all`
	parts, _ := ownSpaces(t, script, "WITH="+keptHead+keptVIPs)
	for head, want := range map[string]string{
		"attach": "culvert attached to lb0, out0\n", "show": "192.0.2.2:80/tcp  ", "refused": "others than root may write to ", "after": "192.0.2.2:80/tcp  ",
	} {
		if !strings.Contains(parts[head], want) {
			t.Errorf("%s: no %q in %s", head, want, parts[head])
		}
	}
	if strings.Contains(parts["after"], "192.0.2.1:80") {
		t.Errorf("left is %s", parts["after"])
	}
}

// TestFoundInterfaceHasTC starts both routers without a list of interfaces. An interface that the SCION router finds has a filter
// of tc, which forwarded packets would go past.
func TestFoundInterfaceHasTC(t *testing.T) {
	b := newKeptBed(t)
	for _, line := range []string{"qdisc add dev lb0 clsact", "filter add dev lb0 ingress protocol ip u32 match u32 0 0 flowid 1:1"} {
		if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", line, err, out)
		}
	}
	const text = "[scion]\nconfig = 'br.toml'\n[route]\n"
	file := b.write("c.toml", text)
	p := startCulvert(t, "run", "-c", file)
	p.waitFor(t, "culvert: "+file+":3:2: forwarded packets would not pass ")
	_ = p.cmd.Wait()
	b.expect(0, "", "status")
	p = startCulvert(t, "run", "-c", b.write("c.toml", text+"bypass_netfilter = true\n"))
	p.waitFor(t, "Service started")
	p.interrupt(t)
}
