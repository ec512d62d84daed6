// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// ends waits until a process has exited with status 0 without being stopped.
func (r *running) ends(t *testing.T) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%v: %v: %s", r.cmd.Args, err, &r.errs)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%v goes on: %s", r.cmd.Args, &r.errs)
	}
}

// TestDetachUnderProcess detaches the data plane of a running process, which then does what its file says.
func TestDetachUnderProcess(t *testing.T) {
	b := newLBBed(t)
	loopback(t)
	f := &filterBed{t: t, dir: b.dir}
	const vip = "[lb]\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\n"
	const head = "interfaces = ['lb0', 'out0']\nmetrics = '127.0.0.1:9442'\n"
	const served = `culvert_lb_vip_served{vip="192.0.2.1:80/tcp"}`

	p := runAttached(t, f.file("exit.toml", head+vip))
	f.metric("127.0.0.1:9442", served, "1")
	f.expect(0, "data plane culvert is still served by a process, which ends now (detached = \"exit\")\n", "detach", "--all")
	p.waitFor(t, "the data plane was detached by somebody else: the process ends")
	p.ends(t)
	f.expect(1, "no load balancer in this network namespace", "lb", "show")

	p = runAttached(t, f.file("attach.toml", "detached = 'attach'\n"+head+vip+
		"[filter]\n[[filter.rule]]\nname = 'file'\naction = 'drop'\nexpression = 'udp port 7'\n"))
	f.metric("127.0.0.1:9442", served, "1")
	for n := range uint32(100) {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), n)
	}
	b.wait("packets", func() bool { return b.arrived("10.0.0.11") == 100 })
	f.expect(0, "data plane culvert detached\ndata plane culvert is still served by a process, which attaches again at once (detached = \"attach\"): to have it stay off, stop the process first\n", "detach", "--all")
	p.waitFor(t, "the data plane was detached by somebody else: it is being attached again")
	for _, name := range []string{"lb0", "out0"} {
		p.waitFor(t, "attached to the interface\" interface="+name)
	}
	f.metric("127.0.0.1:9442", served, "1")
	f.metric("127.0.0.1:9442", `culvert_interface_attached{interface="lb0"}`, "1")
	f.metric("127.0.0.1:9442", `culvert_lb_backend_packets_total{backend="10.0.0.11",vip="192.0.2.1:80/tcp"}`, "100")
	f.expect(0, "file", "filter", "list")
	for n := range uint32(100) {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), n)
	}
	b.wait("packets", func() bool { return b.arrived("10.0.0.11") == 200 })
	f.metric("127.0.0.1:9442", `culvert_lb_backend_packets_total{backend="10.0.0.11",vip="192.0.2.1:80/tcp"}`, "200")
	// A single interface is attached again too.
	f.expect(0, "detached from out0\ndata plane culvert is still served by a process, which attaches again at once (detached = \"attach\")", "detach", "out0")
	f.metric("127.0.0.1:9442", `culvert_interface_attached{interface="out0"}`, "1")
	p.interrupt(t)
	// A process that ends says that its data plane goes on, and how to detach it.
	p.waitFor(t, `the process ends, and the data plane stays: packets go on by it, and the next process takes it over" interfaces="[lb0 out0]" off="culvert detach lb0 out0"`)
}

// TestDetachKeepsFilter detaches the data plane of a process that attaches it again. Rules, sets and protected services made by
// hand are restored with those of the file, and their counters go on. It detaches a second time, too.
func TestDetachKeepsFilter(t *testing.T) {
	b := newPairsBed(t)
	p := runAttached(t, b.file("attach.toml", "interfaces = ['ft0', 'fx0']\ndetached = 'attach'\nmetrics = '127.0.0.1:9444'\n"+
		"[filter]\n[[filter.rule]]\nname = 'file'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.expect(0, "", "filter", "set", "add", "bad", "198.51.100.7")
	b.filter(0, "added", "add --name hand drop", "udp port 7")
	b.filter(0, "added", "add --name port -i ft0 --src @bad drop", "udp")
	b.expect(0, "is protected", "filter", "protect", "192.0.2.1:80")
	p.holds(t, "ft0")
	b.send(3, frame("198.51.100.1", 7))
	b.send(2, frame("198.51.100.7", 9))
	b.send(1, frame("198.51.100.1", 5))
	for n := range uint64(2) {
		b.counted("hand", 3+n)
		b.counted("port", 2+n)
		b.counted("file", 1+n)
		b.expect(0, "detached", "detach", "--all")
		for _, name := range []string{"ft0", "fx0"} {
			b.metric("127.0.0.1:9444", `culvert_interface_attached{interface="`+name+`"}`, "1")
		}
		b.eventually("hand", "filter list")
		for _, want := range []string{"port", "file", "192.0.2.1:80"} {
			b.filter(0, want, "list")
		}
		b.expect(0, "198.51.100.7", "filter", "set", "show", "bad")
		p.holds(t, "ft0")
		b.send(1, frame("198.51.100.1", 7))
		b.send(1, frame("198.51.100.7", 9))
		b.send(1, frame("198.51.100.1", 5))
	}
	b.counted("hand", 5)
	b.counted("port", 4)
	b.counted("file", 3)
	// What was deleted is not restored, not even what the file has, since the file was not read again.
	b.filter(0, "deleted", "del hand")
	b.filter(0, "deleted", "del file")
	p.holds(t, "ft0")
	b.expect(0, "detached", "detach", "--all")
	b.eventually("set bad", "filter list")
	if out := b.filter(0, "port", "list"); strings.Contains(out, "udp port 7") || strings.Contains(out, "udp port 5") {
		t.Errorf("a rule that was deleted is back:\n%s", out)
	}
	p.interrupt(t)
}

// holds waits until a process has the program of an interface open.
func (r *running) holds(t *testing.T, iface string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		l, err := netlink.LinkByName(iface)
		must(err)
		xdp := l.Attrs().Xdp
		if xdp == nil || !xdp.Attached {
			continue
		}
		want := fmt.Sprintf("\nprog_id:\t%d\n", xdp.ProgId)
		paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", r.cmd.Process.Pid))
		must(err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), "prog_type:") && strings.Contains(string(text), want) {
				return
			}
		}
	}
	t.Fatalf("%v does not keep the program on %s open", r.cmd.Args, iface)
}

// TestTableTakenOut starts again with a file that does not have a stage any more. What the file had is removed, and the log
// says so. What was made by hand stays.
func TestTableTakenOut(t *testing.T) {
	b := newLBBed(t)
	f := &filterBed{t: t, dir: b.dir}
	const head = "interfaces = ['lb0', 'out0']\n"
	const rules = "[filter]\n[[filter.rule]]\nname = 'file'\naction = 'drop'\nexpression = 'udp port 7'\n"
	const vips = "[lb]\nring_size = 1009\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\n"
	run := func(text string) *running {
		t.Helper()
		return runAttached(t, f.file("c.toml", head+text))
	}
	lists := func(line string, has, not string) {
		t.Helper()
		if out := f.expect(0, has, strings.Fields(line)...); strings.Contains(out, not) {
			t.Errorf("culvert %s says\n%s, which has %q", line, out, not)
		}
	}
	p := run(rules + vips)
	f.filter(0, "added", "add --name hand drop", "udp port 9")
	f.expect(0, "added", "lb", "vip", "add", "192.0.2.2:80/tcp")
	f.expect(0, "added", "lb", "backend", "add", "192.0.2.2:80/tcp", "10.0.0.12")
	p.interrupt(t)

	p = run(vips)
	p.waitFor(t, "the configuration file names these no more: they are taken out of the filter\" gone=\"rule file\"")
	lists("filter list", "hand", "file  ")
	p.interrupt(t)

	p = run("[filter]\n")
	p.waitFor(t, "the configuration file names these no more: they are taken out of the load balancer\" gone=\"VIP 192.0.2.1:80/tcp\"")
	lists("lb show", "192.0.2.2:80/tcp", "192.0.2.1:80/tcp")
	lists("filter list", "hand", "file  ")
	b.wait("a packet arrives when the way to the backend is known", func() bool {
		b.send(netip.MustParseAddrPort("192.0.2.2:80"), 1)
		return b.arrived("10.0.0.12") > 0
	})
	f.expect(0, "deleted", "lb", "vip", "del", "192.0.2.2:80/tcp")
	p.interrupt(t)

	p = run("[filter]\n")
	f.expect(1, "no load balancer in this network namespace", "lb", "show")
	p.interrupt(t)
	f.expect(0, "attached", "attach", "-c", f.file("c.toml", head+rules+vips), "lb0", "out0")
	f.expect(0, "rule file", "attach", "-c", f.file("c.toml", head+"[lb]\n"), "lb0", "out0")
	lists("filter list", "hand", "file  ")
}
