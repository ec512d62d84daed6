// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

const smallRoute = "[route]\nbypass_netfilter = true\nblocks4 = 64\nblocks6 = 1024\n"

// TestProcessDied kills the process of an IP router, of a load balancer and of a filter. doctor says what does not work without
// it, and how to mend that. It says nothing about a data plane that was attached without a process.
func TestProcessDied(t *testing.T) {
	b := newPairsBed(t)
	doctor := func() string {
		_, out, _ := culvert(t, "doctor")
		return out
	}
	const dies = " culvert has ended and the data plane goes on: "
	for stages, want := range map[string]string{
		smallRoute:                 "FAIL  host  process         the process of router" + dies + "the IP router asks the kernel for each packet, and does not notice new rules of netfilter\n",
		"[lb]\nring_size = 1009\n": "FAIL  host  process         the process of data plane" + dies + "backends are not checked, and no VIP is announced\n",
		"[filter]\n":               "warn  host  process         the process of data plane" + dies + "the filter is not attached to an interface that is deleted and made again\n",
	} {
		path := b.file("c.toml", "interfaces = ['ft0']\n"+stages)
		p := runAttached(t, path)
		if out := doctor(); strings.Contains(out, dies) {
			t.Errorf("it lives, and doctor says\n%s", out)
		}
		must(p.cmd.Process.Kill())
		_ = p.cmd.Wait()
		if left := leftBehind(t); len(left) == 0 {
			t.Error("a killed process leaves nothing in /run/culvert: there is nothing to be removed")
		}
		out := doctor()
		if squeezed := strings.Join(strings.Fields(out), " "); !strings.Contains(squeezed, strings.Join(strings.Fields(want), " ")+" -> culvert run -c FILE") {
			t.Errorf("%s: doctor says\n%swant\n%s", stages, out, want)
		}
		p = runAttached(t, path)
		if out := doctor(); strings.Contains(out, dies) {
			t.Errorf("it lives again, and doctor says\n%s", out)
		}
		p.interrupt(t)
		if left := leftBehind(t); len(left) > 0 {
			t.Errorf("left after the next one: %v", left)
		}
		b.expect(0, "detached", "detach", "--all")
	}

	must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	path := b.file("c.toml", "interfaces = ['ft0']\n"+smallRoute)
	b.expect(0, "attached", "attach", "-c", path, "ft0")
	if out := doctor(); strings.Contains(out, dies) {
		t.Errorf("it never had a process, and doctor says\n%s", out)
	}
	b.expect(0, "route  IPv4 asks the kernel: it was attached without a process, and only a process keeps a mirror (culvert run)", "status")
	p := runAttached(t, b.file("none.toml", "interfaces = ['ft0']\n[route]\nbypass_netfilter = true\nmirror = false\n"))
	b.expect(0, "route  IPv4 asks the kernel: there is no mirror, as configured (mirror = false)", "status")
	must(p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	b.expect(0, "detached", "detach", "ft0")
	if left := leftBehind(t); len(left) > 0 {
		t.Errorf("left after detach: %v", left)
	}
}

// TestDiedBesideNetfilter adds a rule of netfilter to a running IP router and kills its process. doctor says that the next start
// needs another remedy first.
func TestDiedBesideNetfilter(t *testing.T) {
	b := newPairsBed(t)
	p := runAttached(t, b.file("c.toml", "interfaces = ['ft0']\n[route]\nblocks4 = 64\nblocks6 = 1024\n"))
	if out, err := exec.Command("nft", "table ip t { chain f { type filter hook forward priority 0; counter; }; }").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.eventually("nft ip t f (1 rule): the IP router that runs leaves all packets to the kernel, because of it", "doctor")
	must(p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	_, out, _ := culvert(t, "doctor")
	squeezed := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"FAIL host netfilter nft ip t f (1 rule): the process of the IP router has ended, and starts again only once these rules are removed, or with route.bypass_netfilter = true",
		"-> mend what check netfilter found, then: culvert run -c FILE",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("doctor says\n%swithout %q", out, want)
		}
	}
}

// leftBehind returns the files that processes have left in /run/culvert for this network namespace.
func leftBehind(t *testing.T) []string {
	t.Helper()
	var here unix.Stat_t
	must(unix.Stat("/proc/thread-self/ns/net", &here))
	left, err := filepath.Glob(fmt.Sprintf("/run/culvert/*-%d-*.json*", here.Ino))
	must(err)
	return left
}

// TestStatusOfPeer replaces a veth of an IP router by one whose peer has no NAPI, and then turns checksum offload on at the peer.
// status reports both, with the command that mends it.
func TestStatusOfPeer(t *testing.T) {
	b := newPairsBed(t)
	able := func(name string, napi bool) {
		t.Helper()
		if napi {
			_, err := netdev.Ethtool(name, unix.ETHTOOL_SGRO, 1)
			must(err)
		}
		_, err := netdev.Ethtool(name, unix.ETHTOOL_STXCSUM, 0)
		must(err)
	}
	able("ft1", true)
	able("fx1", true)
	p := runAttached(t, b.file("c.toml", "interfaces = ['ft0', 'fx0']\n"+smallRoute))
	says := func(want string) {
		t.Helper()
		out := b.expect(0, want, "status")
		if n := strings.Count(out, "FAILS"); n != strings.Count(want, "FAILS") {
			t.Errorf("status says FAILS %d times:\n%s", n, out)
		}
	}
	says("interface ft0")
	b.remake()
	able("ft1", false)
	p.waitFor(t, "attached to the interface\" interface=ft0")
	says("  interface ft0\n    FAILS: no frames can be redirected into it, because peer ft1 has NAPI off: ")
	b.expect(0, ": ethtool -K ft1 gro on\n", "status")
	able("ft1", true)
	says("interface ft0")
	_, err := netdev.Ethtool("ft1", unix.ETHTOOL_STXCSUM, 1)
	must(err)
	says("  interface ft0\n    FAILS: packets that come in are forwarded with unfinished checksums, and TCP hangs: tx offload is on at peer ft1: ethtool -K ft1 tx off\n")
	var report struct {
		Routers []struct {
			Interfaces []struct {
				Peer []struct{ Check, Command string }
			}
		}
	}
	must(json.Unmarshal([]byte(b.expect(0, "", "status", "-j")), &report))
	if peer := report.Routers[0].Interfaces[0].Peer; len(peer) != 1 || peer[0].Check != "peer-checksum" || peer[0].Command != "ethtool -K ft1 tx off" {
		t.Errorf("as JSON: %+v", peer)
	}
	p.interrupt(t)
}

// TestDeletedInterfaceSaidOnce deletes an interface of an IP router. The log says that it does not exist, and does not add that
// the kernel forwards packets that come in by it.
func TestDeletedInterfaceSaidOnce(t *testing.T) {
	b := newPairsBed(t)
	b.veth("fy0", "fy1")
	p := runAttached(t, b.file("c.toml", "interfaces = ['ft0', 'fx0', 'fy0']\n"+smallRoute))
	b.eventually(`"stage":"route","state":"ready"`, "status -j")
	b.unmake()
	p.waitFor(t, "the interface does not exist: culvert attaches to it when it does\" interface=ft0")
	b.expect(0, "detached from fx0", "detach", "fx0")
	p.waitFor(t, "an interface does not carry the program any more: the kernel forwards what comes in by it\" interface=fx0")
	p.interrupt(t)
	_, log, _ := strings.Cut(p.errs.String(), "the interface does not exist")
	if strings.Count(log, "interface=ft0") != 1 || strings.Count(p.errs.String(), "does not carry the program any more") != 1 {
		t.Errorf("the log:\n%s", &p.errs)
	}
}

// TestProtectElsewhere protects a service at an address that this host does not have, by hand and by the file. Both warn.
func TestProtectElsewhere(t *testing.T) {
	b := newFilterBed(t)
	l, err := netlink.LinkByName("ft0")
	must(err)
	own, err := netlink.ParseAddr("192.0.2.5/24")
	must(err)
	must(netlink.AddrAdd(l, own))
	p := runAttached(t, b.file("c.toml", "interfaces = ['ft0']\n[[filter.protect]]\naddress = '192.0.2.7:443'\n"+
		"[[filter.protect]]\naddress = '192.0.2.5:443'\n[[filter.protect]]\naddress = '192.0.2.8:443'\nforwarded = true\n"))
	const not = "this host does not have the address "
	b.filter(0, not+"192.0.2.1: no connection to the service comes about until it has; for one behind this host say --forwarded\n", "protect 192.0.2.1:80")
	for _, line := range []string{"protect 192.0.2.5:80", "protect --forwarded 192.0.2.2:80"} {
		if out := b.filter(0, "is protected", line); strings.Contains(out, not) {
			t.Errorf("filter %s says %q", line, out)
		}
	}
	p.interrupt(t)
	log := p.errs.String()
	if strings.Count(log, "this host does not have") != 1 || !strings.Contains(log, "c.toml:3:11: this host does not have the address of protected service 192.0.2.7:443: ") ||
		!strings.Contains(log, "set forwarded = true\"\n") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestForwardedBesideRouter protects services beside an IP router: those behind this host are refused, by hand and in the file,
// which doctor says too. Those on this host may have a synproxy rule at input.
func TestForwardedBesideRouter(t *testing.T) {
	b := newFilterBed(t)
	l, err := netlink.LinkByName("ft0")
	must(err)
	own, err := netlink.ParseAddr("192.0.2.5/24")
	must(err)
	must(netlink.AddrAdd(l, own))
	file := func(services ...string) string {
		text := "interfaces = ['ft0']\n" + smallRoute
		for _, s := range services {
			text += "[[filter.protect]]\naddress = '" + s + "'\nforwarded = true\n"
		}
		return b.file("c.toml", text)
	}
	const refused = " cannot be protected as a forwarded service beside the IP router: "
	both := file("192.0.2.5:443", "192.0.2.7:443")
	for _, args := range [][]string{{"attach", "-c", both, "ft0"}, {"run", "-c", both}, {"doctor", "-c", both}} {
		b.expect(1, "c.toml:10:11: 192.0.2.7:443"+refused, args...)
	}
	b.expect(0, "attached", "attach", "-c", file("192.0.2.5:443"), "ft0")
	b.filter(0, "192.0.2.5:80 is protected", "protect --forwarded 192.0.2.5:80")
	b.filter(1, "192.0.2.8:80"+refused, "protect --forwarded 192.0.2.8:80")
	b.filter(0, "; one behind this host cannot be protected beside the IP router\n", "protect 192.0.2.8:80")
	b.expect(0, "\nnot asked: the filter in front with 3 protected services, see 'culvert filter test'\n", "route", "get", "192.0.2.9")
	if _, out, _ := culvert(t, "doctor", "-i", "ft0"); !strings.Contains(out, "add one to a chain at input") || strings.Contains(out, "at forward, and") {
		t.Errorf("doctor says\n%s", out)
	}
	b.expect(0, "", "detach", "ft0")

	b.expect(0, "attached", "attach", "-c", b.file("c.toml", "interfaces = ['ft0']\n[filter]\n"), "ft0")
	b.filter(0, "192.0.2.8:80 is protected", "protect --forwarded 192.0.2.8:80")
	b.expect(1, "192.0.2.8:80"+refused, "attach", "-c", file(), "ft0")
	b.filter(0, "", "unprotect 192.0.2.8:80")
	b.expect(0, "attached", "attach", "-c", file(), "ft0")
}

// TestNoInterfaceYet starts a process while none of its interfaces exists.
func TestNoInterfaceYet(t *testing.T) {
	b := newFilterBed(t)
	p := startCulvert(t, "run", "-c", b.file("c.toml", "interfaces = ['fx0', 'fx2']\n[filter]\n"))
	p.waitFor(t, "the interface does not exist: culvert attaches to it when it does\" interface=fx0")
	p.waitFor(t, "the interface does not exist: culvert attaches to it when it does\" interface=fx2")
	for _, verb := range []string{"watch", "status"} {
		b.expect(1, "no data plane nosuch on this machine: use culvert", verb, "--on", "nosuch")
	}
	b.expect(0, "  none of its interfaces exists: the process attaches when they do\n", "status")
	b.veth("fx0", "fx1")
	p.waitFor(t, "attached to the interface\" interface=fx0")
	p.interrupt(t)
	log := p.errs.String()
	if !strings.Contains(log, "attached to nothing yet: none of the interfaces exists: see 'ip link'\" name=culvert") || strings.Contains(log, "[]") {
		t.Errorf("the log:\n%s", log)
	}
	fx0, err := netlink.LinkByName("fx0")
	must(err)
	must(netlink.LinkDel(fx0))
}

// TestPeerInGenericMode runs an IP router in generic mode on a veth whose peer has no NAPI: the kernel sends frames into it all the same.
func TestPeerInGenericMode(t *testing.T) {
	b := newPairsBed(t)
	for _, name := range []string{"ft1", "fx1"} {
		_, err := netdev.Ethtool(name, unix.ETHTOOL_STXCSUM, 0)
		must(err)
	}
	const arrive = "frames redirected into it arrive: generic mode does not need NAPI at the peer"
	doctor := func(want string, args ...string) {
		t.Helper()
		_, stdout, _ := culvert(t, append([]string{"doctor"}, args...)...)
		if !strings.Contains(stdout, want) || strings.Contains(stdout, "has NAPI off") {
			t.Errorf("culvert doctor %q: want %q in\n%s", args, want, stdout)
		}
	}
	file := b.file("c.toml", "interfaces = ['ft0', 'fx0']\nmode = 'generic'\n"+smallRoute)
	doctor(arrive, "-c", file)
	b.expect(0, "", "attach", "-c", file)
	doctor(arrive, "-i", "ft0")
	if out := b.expect(0, "interface ft0", "status"); strings.Contains(out, "FAILS") {
		t.Errorf("status:\n%s", out)
	}
}
