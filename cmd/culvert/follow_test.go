// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// remake deletes ft0 and its peer, and makes both again.
func (b *filterBed) remake() { b.t.Helper(); b.unmake(); b.makeAgain() }

func (b *filterBed) unmake() {
	b.t.Helper()
	l, err := netlink.LinkByName("ft0")
	must(err)
	must(netlink.LinkDel(l))
}

func (b *filterBed) makeAgain() {
	b.t.Helper()
	b.veth("ft0", "ft1")
	var err error
	b.peer, err = net.InterfaceByName("ft1")
	must(err)
}

// veth makes a pair on which the kernel sends no packets of its own.
func (b *filterBed) veth(names ...string) {
	b.t.Helper()
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: names[0]}, PeerName: names[1]}))
	for _, name := range names {
		must(os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0))
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
	}
}

// eventually runs a command line until its output has a text.
func (b *filterBed) eventually(want, line string) {
	b.t.Helper()
	var got string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, stdout, stderr := culvert(b.t, strings.Fields(line)...)
		if got = stdout + stderr; strings.Contains(got, want) {
			return
		}
	}
	b.t.Fatalf("culvert %s says\n%s, want %q", line, got, want)
}

// get asks for a path by HTTP in the bed's namespace, and returns the answer with its header, "" without a connection.
func (b *filterBed) get(addr, path string, header ...string) string {
	b.t.Helper()
	// This thread is in the namespace, so it has to make the connection.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(err)
	file := os.NewFile(uintptr(fd), "connection")
	at, err := net.ResolveTCPAddr("tcp4", addr)
	must(err)
	if unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}) != nil {
		file.Close()
		return ""
	}
	conn, err := net.FileConn(file)
	must(err)
	file.Close()
	defer conn.Close()
	req, err := http.NewRequest("GET", "http://"+addr+path, nil)
	must(err)
	for n := 0; n+1 < len(header); n += 2 {
		if header[n] == "Host" {
			req.Host = header[n+1]
		}
		req.Header.Set(header[n], header[n+1])
	}
	req.Close = true
	must(req.Write(conn))
	body, _ := io.ReadAll(conn)
	return string(body)
}

// metric waits until a metric of the process in the bed's namespace has a value, or is missing if the value is "".
func (b *filterBed) metric(addr, name, want string) {
	b.t.Helper()
	get := func() string {
		body := b.get(addr, "/metrics")
		if body == "" {
			return "no connection"
		}
		for line := range strings.Lines(body) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	var got string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = get(); got == want {
			return
		}
	}
	b.t.Fatalf("metric %s is %q, want %q", name, got, want)
}

func loopback(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
}

// newPairsBed returns a filterBed with a second pair, fx0 and fx1, in which metrics can be read.
func newPairsBed(t *testing.T) *filterBed {
	t.Helper()
	b := newFilterBed(t)
	loopback(t)
	b.veth("fx0", "fx1")
	return b
}

// TestInterfaceMadeAgain deletes an interface of a process and makes it again. The rules of the file and those made by hand are in
// force on the new one. Meanwhile status, doctor and metrics report the missing interface. The other interface loses no packet.
func TestInterfaceMadeAgain(t *testing.T) {
	b := newPairsBed(t)
	file := b.file("c.toml", "interfaces = ['ft0', 'fx0']\nmetrics = '127.0.0.1:9441'\n[filter]\n"+
		"[[filter.rule]]\nname = 'here'\naction = 'drop'\ninterfaces = ['ft0']\nexpression = 'udp port 5'\n")
	p := runAttached(t, file)
	b.filter(0, "added", "add --name hand drop", "udp port 7")
	b.send(3, frame("198.51.100.1", 7))
	b.send(2, frame("198.51.100.1", 5))
	b.counted("hand", 3)
	b.counted("here", 2)
	b.metric("127.0.0.1:9441", `culvert_interface_attached{interface="ft0"}`, "1")

	b.unmake()
	p.waitFor(t, "the interface does not exist: culvert attaches to it when it does")
	b.metric("127.0.0.1:9441", `culvert_interface_attached{interface="ft0"}`, "0")
	b.metric("127.0.0.1:9441", `culvert_interface_attached{interface="fx0"}`, "1")
	b.expect(0, "interface ft0  NOT ATTACHED: it does not exist", "status")
	b.eventually("data plane culvert is not attached to ft0, as it should be: it does not exist; the process attaches when it does", "doctor -i fx0")
	b.filter(0, "hand", "list")
	const missing = "culvert is not on ft0 now: there the rule is in force once it is attached again\n"
	b.filter(0, "rule later added\n"+missing, "add --name later -i ft0 -i fx0 drop", "udp port 9")
	for _, line := range []string{"add --name other -i fx0 count", "add --name any count"} {
		if out := b.filter(0, "added", line); strings.Contains(out, "culvert is not on") {
			t.Errorf("filter %s says %q", line, out)
		}
	}
	b.filter(0, missing, "add --replace --name other -i ft0 count")
	b.filter(0, "deleted", "del other any")
	b.makeAgain()
	p.waitFor(t, "attached to the interface")
	b.expect(0, "", "status")
	b.send(4, frame("198.51.100.1", 7))
	b.send(5, frame("198.51.100.1", 5))
	b.send(1, frame("198.51.100.1", 9))
	b.counted("hand", 7)
	b.counted("here", 7)
	b.counted("later", 1)
	b.metric("127.0.0.1:9441", `culvert_interface_attached{interface="ft0"}`, "1")

	// The second time the interface is back before the process notices.
	for range 3 {
		b.remake()
		b.metric("127.0.0.1:9441", `culvert_interface_attached{interface="ft0"}`, "1")
		b.send(1, frame("198.51.100.1", 7))
	}
	b.counted("hand", 10)

	// If the process ends meanwhile, the next one attaches to the new interface.
	b.unmake()
	_ = p.interrupt(t)
	b.expect(0, "NOT ATTACHED", "status")
	p = startCulvert(t, "run", "-c", file)
	p.waitFor(t, "the interface does not exist")
	b.makeAgain()
	p.waitFor(t, "attached to the interface")
	b.send(1, frame("198.51.100.1", 7))
	b.send(1, frame("198.51.100.1", 5))
	b.counted("hand", 11)
	b.counted("here", 8)
}

// TestOnlyInterfaceMadeAgain deletes the only interface of a data plane, whose state stays meanwhile.
func TestOnlyInterfaceMadeAgain(t *testing.T) {
	b := newFilterBed(t)
	file := b.file("c.toml", "interfaces = ['ft0']\n[filter]\n")
	p := runAttached(t, file)
	b.filter(0, "added", "add --name hand drop", "udp port 7")
	b.send(3, frame("198.51.100.1", 7))
	b.counted("hand", 3)
	b.unmake()
	p.waitFor(t, "the interface does not exist")
	b.filter(0, "filter of culvert on NO INTERFACE  1 rule", "list")
	b.filter(0, "is on no interface now: this is in force once ft0 is there again", "add --name later drop", "udp port 9")
	_ = p.interrupt(t) // and a restart
	b.expect(0, "its interfaces are gone: attach again", "status")
	b.eventually("data plane culvert is not attached to ft0", "doctor")
	p = startCulvert(t, "run", "-c", file)
	p.waitFor(t, "the interface does not exist")
	b.makeAgain()
	p.waitFor(t, "attached to the interface")
	b.send(4, frame("198.51.100.1", 7))
	b.send(1, frame("198.51.100.1", 9))
	b.counted("hand", 7)
	b.counted("later", 1)
}

// TestMissingInterface starts without one of the interfaces. By the file, the process waits for it or fails.
func TestMissingInterface(t *testing.T) {
	b := newFilterBed(t)
	rule := "[filter]\n[[filter.rule]]\nname = 'r'\naction = 'drop'\ninterfaces = ['fx0']\nexpression = 'udp port 7'\n" +
		"[[filter.rule]]\nname = 'any'\naction = 'count'\nexpression = 'udp'\n"
	b.expect(1, "interface fx0 does not exist", "run", "-c", b.file("c.toml", "interfaces = ['fx0', 'ft0']\nmissing = 'refuse'\n"+rule))
	p := runAttached(t, b.file("c.toml", "interfaces = ['fx0', 'ft0']\n"+rule))
	p.waitFor(t, "the interface does not exist: culvert attaches to it when it does\" interface=fx0")
	b.send(2, frame("198.51.100.1", 7))
	b.counted("any", 2)
	b.veth("fx0", "fx1")
	p.waitFor(t, "attached to the interface\" interface=fx0")
	var err error
	b.peer, err = net.InterfaceByName("fx1")
	must(err)
	b.send(3, frame("198.51.100.1", 7))
	b.counted("r", 3)
}

// TestInterfaceNameTaken renames an interface, or moves it to another network namespace, and makes another one with its name. The
// rules are in force there too once the log says so. Without a process, status and doctor report that they are not.
func TestInterfaceNameTaken(t *testing.T) {
	otherSpace := func(t *testing.T) int {
		own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(err)
		must(unix.Unshare(unix.CLONE_NEWNET))
		other, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(err)
		must(unix.Setns(own, unix.CLONE_NEWNET))
		must(unix.Close(own))
		t.Cleanup(func() { unix.Close(other) })
		return other
	}
	for name, c := range map[string]struct {
		change          func(t *testing.T, l netlink.Link)
		log, status, on string
	}{
		"renamed": {func(t *testing.T, l netlink.Link) {
			must(netlink.LinkSetDown(l))
			must(netlink.LinkSetName(l, "old0"))
			must(netlink.LinkSetUp(l))
		}, "the interface was renamed to old0, which still carries the program, and another one has its name",
			"it was renamed to old0, and another interface has its name", "fx0, old0"},
		"moved": {func(t *testing.T, l netlink.Link) { must(netlink.LinkSetNsFd(l, otherSpace(t))) },
			"the interface was moved to another network namespace", "it is in another network namespace, and another interface has its name", "fx0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPairsBed(t)
			file := b.file("c.toml", "interfaces = ['ft0', 'fx0']\nmetrics = '127.0.0.1:9443'\n[filter]\n"+
				"[[filter.rule]]\nname = 'here'\naction = 'drop'\ninterfaces = ['ft0']\nexpression = 'udp port 5'\n")
			p := runAttached(t, file)
			b.filter(0, "added", "add --name hand drop", "udp port 7")
			change := func() {
				l, err := netlink.LinkByName("ft0")
				must(err)
				c.change(t, l)
				old, err := netlink.LinkByName("ft1")
				must(err)
				must(netlink.LinkSetName(old, "oldpeer"))
				b.makeAgain()
			}
			change()
			p.waitFor(t, c.log)
			p.waitFor(t, "attached to the interface\" interface=ft0")
			b.metric("127.0.0.1:9443", `culvert_interface_attached{interface="ft0"}`, "1")
			b.send(3, frame("198.51.100.1", 7))
			b.send(2, frame("198.51.100.1", 5))
			b.counted("hand", 3)
			b.counted("here", 2)
			_ = p.interrupt(t)

			// The next one leaves the interface that was ft0 alone. And now nobody follows.
			p = runAttached(t, file)
			_ = p.interrupt(t)
			if l, err := netlink.LinkByName("old0"); err == nil {
				must(netlink.LinkDel(l))
			} else {
				l, err = netlink.LinkByName("oldpeer")
				must(err)
				must(netlink.LinkDel(l))
			}
			change()
			b.expect(0, "interface ft0  NOT ATTACHED: "+c.status, "status")
			b.eventually("data plane culvert is not attached to ft0, as it should be: it was "+name, "doctor -i fx0")
			b.filter(0, "filter of culvert on "+c.on+"  ", "list")
		})
	}
}
