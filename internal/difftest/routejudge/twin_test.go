// SPDX-License-Identifier: Apache-2.0

// Package routejudge compares culvert's IP router with the kernel, which is the judge. With the same routing table, Linux and
// the fast path must produce the same bytes from the same packet.
package routejudge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// patience bounds every wait. Tests that pass wait much shorter.
const patience = 30 * time.Second

const (
	// ports is how many interfaces a router has. The first xdpPorts carry culvert, portWithoutXDP does not.
	ports          = 4
	portWithoutXDP = ports - 1
	xdpPorts       = ports - 1
	// firstHost to lastHost are the hosts of each port's network with a neighbor entry.
	firstHost, lastHost = 2, 9
)

// mtus are the MTUs of the router's ports. The far ends have 1500.
var mtus = [ports]int{1500, 1400, 1500, 1500}

// twin is a router and its surroundings: two namespaces with four veth pairs between them.
type twin struct {
	t             *testing.T
	router, world netns.NsHandle
	// index and far are the interfaces of the router and of the world.
	index, far [ports]int
	wire       *wire
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pinToCPU locks the test to a thread and a CPU of its own until it ends. All frames then go through one queue of the kernel,
// in the order in which they were sent.
func pinToCPU(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run the tests with sudo")
	}
	runtime.LockOSThread()
	var may, one unix.CPUSet
	check(t, unix.SchedGetaffinity(0, &may))
	for cpu := range 1024 {
		if may.IsSet(cpu) {
			one.Set(cpu) // the last one: the first has most of the interrupts
		}
		if may.IsSet(cpu) && one.Count() > 1 {
			one.Zero()
			one.Set(cpu)
		}
	}
	check(t, unix.SchedSetaffinity(0, &one))
}

// newTwin makes a router. All twins are equal except for their namespaces.
func newTwin(t *testing.T) *twin {
	t.Helper()
	w := &twin{t: t}
	var err error
	w.world, err = netns.New()
	check(t, err)
	t.Cleanup(func() { w.world.Close() })
	// The world sends nothing of its own, and answers nothing.
	for _, which := range []string{"all", "default"} {
		w.set("net/ipv6/conf/"+which+"/disable_ipv6", "1")
	}
	w.router, err = netns.New()
	check(t, err)
	t.Cleanup(func() { w.router.Close() })
	w.defaults()
	var batch strings.Builder
	fmt.Fprintln(&batch, "link set lo up")
	for i := range ports {
		w.addPort(i)
		w.addresses(&batch, i)
	}
	w.ip(batch.String())
	check(t, netns.Set(w.world))
	for i := range ports {
		q, err := net.InterfaceByName(farName(i))
		check(t, err)
		w.far[i] = q.Index
		l, err := netlink.LinkByIndex(q.Index)
		check(t, err)
		check(t, netlink.LinkSetUp(l))
	}
	w.wire = newWire(w)
	w.enter()
	for i := range ports {
		w.awaitUp(i)
	}
	w.wire.drain()
	return w
}

// awaitUp waits until a port sends. The kernel starts its queue some time after its peer has come up.
func (w *twin) awaitUp(port int) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByIndex(w.index[port])
		check(w.t, err)
		if l.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("%s does not come up: %v", portName(port), l.Attrs().OperState)
		}
	}
}

// setCarrier takes the carrier of a port away or gives it back, and waits until the kernel has noticed. It is called in the
// router's namespace.
func (w *twin) setCarrier(port int, on bool) error {
	set := netlink.LinkSetDown
	if on {
		set = netlink.LinkSetUp
	}
	err := netns.Set(w.world)
	if err == nil {
		err = errors.Join(set(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: w.far[port]}}), netns.Set(w.router))
	}
	for end := time.Now().Add(patience); err == nil; time.Sleep(time.Millisecond) {
		l, err := netlink.LinkByIndex(w.index[port])
		switch {
		case err != nil:
			return err
		case (l.Attrs().OperState == netlink.OperUp) == on:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the carrier of %s does not become %v: %v", portName(port), on, l.Attrs().OperState)
		}
	}
	return err
}

func portName(i int) string { return fmt.Sprintf("p%d", i) }
func farName(i int) string  { return fmt.Sprintf("q%d", i) }

// portMAC returns a port's MAC address. No two ports have the same, so it shows by which one a frame has left.
func portMAC(i int) [6]byte    { return [6]byte{2, 0, 0, 0, 1, byte(i)} }
func hostMAC(i, h int) [6]byte { return [6]byte{2, 0, 0, 0, 0x10 + byte(i), byte(h)} }

func mac(m [6]byte) string { return net.HardwareAddr(m[:]).String() }

// defaults applies the settings with which every scenario starts. They turn off the kernel's rate limits of answers.
func (w *twin) defaults() {
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "1"}, {"net/ipv6/conf/all/forwarding", "1"}, {"net/ipv6/conf/default/forwarding", "1"},
		{"net/ipv4/conf/all/rp_filter", "0"}, {"net/ipv4/conf/default/rp_filter", "0"},
		{"net/ipv4/icmp_ratemask", "0"}, {"net/ipv4/icmp_ratelimit", "0"}, {"net/ipv6/icmp/ratelimit", "0"},
		{"net/ipv6/conf/default/addr_gen_mode", "1"}, {"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv6/conf/default/dad_transmits", "0"}, {"net/ipv6/conf/all/accept_redirects", "0"},
		{"net/ipv4/conf/all/accept_redirects", "0"}, {"net/ipv4/conf/default/accept_redirects", "0"},
	} {
		w.set(s[0], s[1])
	}
	// Before Linux 6.13 these are the machine's, and only its first namespace has them.
	for _, name := range []string{"icmp_msgs_per_sec", "icmp_msgs_burst"} {
		if _, err := os.Stat("/proc/sys/net/ipv4/" + name); err == nil {
			w.set("net/ipv4/"+name, "1000000")
		}
	}
}

func (w *twin) addPort(i int) {
	t := w.t
	far := hostMAC(i, 0)
	own := portMAC(i)
	attrs := netlink.LinkAttrs{Name: portName(i), MTU: mtus[i], NumTxQueues: 1, NumRxQueues: 1, HardwareAddr: own[:]}
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: farName(i), PeerHardwareAddr: far[:],
		PeerNamespace: netlink.NsFd(w.world), PeerMTU: 1500}))
	p, err := net.InterfaceByName(portName(i))
	check(t, err)
	w.index[i] = p.Index
}

// addresses writes the commands that give a port its networks and permanent neighbor entries.
func (w *twin) addresses(b *strings.Builder, i int) {
	p := portName(i)
	fmt.Fprintf(b, "link set %s up\n", p)
	fmt.Fprintf(b, "addr add 10.1.%d.1/24 brd + dev %s\n", i, p)
	fmt.Fprintf(b, "addr add fd00:1:%d::1/64 nodad dev %s\n", i, p)
	fmt.Fprintf(b, "addr add fe80::%d:1/64 nodad dev %s\n", i, p)
	for h := firstHost; h <= lastHost; h++ {
		for _, a := range []string{
			fmt.Sprintf("10.1.%d.%d", i, h), fmt.Sprintf("fd00:1:%d::%d", i, h), fmt.Sprintf("fe80::%d:%d", i, h),
			fmt.Sprintf("172.16.%d.%d", i, h),
		} {
			fmt.Fprintf(b, "neigh add %s lladdr %s dev %s nud permanent\n", a, mac(hostMAC(i, h)), p)
		}
	}
}

// enter moves the calling thread to the router's namespace.
func (w *twin) enter() {
	w.t.Helper()
	check(w.t, netns.Set(w.router))
}

// set writes a sysctl of the calling thread's namespace.
func (w *twin) set(path, value string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0); err != nil {
		w.t.Fatal(err)
	}
}

// six marks lines for "ip -6". ip(8) takes lines without addresses for IPv4.
const six = "-6 "

// get reads a number from a sysctl of the calling thread's namespace.
func (w *twin) get(path string) int {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc/sys", path))
	check(w.t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	check(w.t, err)
	return n
}

// ip runs lines of ip(8) in the namespace of the calling thread. The test fails if one fails.
func (w *twin) ip(lines string) {
	w.t.Helper()
	w.run(lines)
}

// try is ip for lines of which some may fail.
func (w *twin) try(lines string) {
	w.t.Helper()
	w.run(lines, "-force")
}

func (w *twin) run(lines string, flags ...string) {
	w.t.Helper()
	var v4, v6 strings.Builder
	for l := range strings.Lines(lines) {
		if rest, found := strings.CutPrefix(l, six); found {
			v6.WriteString(rest)
		} else {
			v4.WriteString(l)
		}
	}
	for _, part := range []struct {
		lines string
		flags []string
	}{{v4.String(), flags}, {v6.String(), append([]string{"-6"}, flags...)}} {
		if part.lines == "" {
			continue
		}
		cmd := exec.Command("ip", append(part.flags, "-batch", "-")...)
		cmd.Stdin = strings.NewReader(part.lines)
		if out, err := cmd.CombinedOutput(); err != nil && !slices.Contains(flags, "-force") {
			w.t.Fatalf("ip -batch: %v: %s\n%s", err, out, numbered(part.lines, string(out)))
		}
	}
}

// numbered returns the line of a batch for which ip(8) has reported an error.
func numbered(lines, complaint string) string {
	var n int
	if _, after, found := strings.Cut(complaint, "Command failed -:"); found {
		_, _ = fmt.Sscanf(after, "%d", &n)
	}
	all := strings.Split(lines, "\n")
	if n < 1 || n > len(all) {
		return ""
	}
	return all[n-1]
}
