// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/stats"
)

// leftovers are the directories of pins that tests have made, for when they are interrupted.
var leftovers struct {
	sync.Mutex
	dirs map[string]bool
}

func TestMain(m *testing.M) {
	if role := os.Getenv(holderEnv); role != "" {
		os.Exit(hold(role))
	}
	if times := os.Getenv(balanceEditorEnv); times != "" {
		os.Exit(editBalance(times))
	}
	leftovers.dirs = make(map[string]bool)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		leftovers.Lock()
		for dir := range leftovers.dirs {
			os.RemoveAll(dir)
		}
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// inNamespace moves the test to a thread of its own with an empty network namespace. It ends with
// the thread, what is pinned for it with the test.
func inNamespace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	dir := spaceDir(t)
	leftovers.Lock()
	leftovers.dirs[dir] = true
	leftovers.Unlock()
	if _, err := os.Stat(dir); err == nil {
		t.Logf("removing what an earlier namespace of the same inode has left in %s", dir)
		os.RemoveAll(dir)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		leftovers.Lock()
		delete(leftovers.dirs, dir)
		leftovers.Unlock()
	})
	// Nothing but the tests' own packets.
	for _, which := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// spaceDir is where the pins of this network namespace are.
func spaceDir(t testing.TB) string {
	t.Helper()
	root, err := pinRoot()
	if err != nil {
		t.Fatal(err)
	}
	here, err := currentSpace()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, strconv.FormatUint(uint64(here.inode), 10))
}

// addVeth makes a pair that is up and returns its first end.
func addVeth(t testing.TB, name, peer string) *net.Interface {
	t.Helper()
	// One queue, and in it no reordering.
	attrs := netlink.LinkAttrs{Name: name, NumTxQueues: 1, NumRxQueues: 1}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: peer}); err != nil {
		t.Fatalf("add veth %s: %v", name, err)
	}
	for _, end := range []string{name, peer} {
		l, err := netlink.LinkByName(end)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	return device(t, name)
}

func device(t testing.TB, name string) *net.Interface {
	t.Helper()
	p, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
	return p
}

func deleteDevice(t *testing.T, name string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// xdpProgram returns the ID of the XDP program on an interface, 0 if there is none.
func xdpProgram(t *testing.T, name string) uint32 {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp.ProgId
	}
	return 0
}

// attachForeign puts a program that is not culvert's on an interface, which passes everything.
func attachForeign(t *testing.T, name string) {
	t.Helper()
	attachProgram(t, name, asm.Instructions{asm.Mov.Imm(asm.R0, 2 /* XDP_PASS */), asm.Return()})
}

func attachProgram(t *testing.T, name string, code asm.Instructions) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, Instructions: code, License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: device(t, name).Index, Flags: link.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// mustAttach attaches for the length of the test.
func mustAttach(t *testing.T, c Config, interfaces ...string) *Instance {
	t.Helper()
	inst, err := Attach(Options{Name: "br1", Interfaces: interfaces}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}

var (
	testIA  = addr.MustParseIA("1-ff00:0:110")
	testKey = Key{1, 2, 3}
)

// testConfig has an internal link and external links with the given interface IDs.
func testConfig(ids ...uint16) Config {
	c := Config{
		LocalIA:   uint64(testIA),
		Links:     []Link{{Name: "internal", Local: netip.MustParseAddrPort("10.0.0.1:30042")}},
		PortStart: 31000,
		PortEnd:   32767,
	}
	for n, id := range ids {
		c.Links = append(c.Links, Link{
			Name:       strconv.Itoa(int(id)),
			Scope:      ScopeExternal,
			IfID:       id,
			NeighborIA: uint64(testIA) + uint64(id),
			Local:      netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 1}), 50000),
			Remote:     netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 2}), 50000),
		})
		c.Interfaces = append(c.Interfaces, Interface{ID: id, Link: n + 1, Type: LinkCore})
	}
	return c
}

func linkIndex(t *testing.T, c Config, name string) int {
	t.Helper()
	for n, l := range c.Links {
		if l.Name == name {
			return n
		}
	}
	t.Fatalf("no link %s", name)
	return 0
}

// transitFrame enters by a device at interface 1 and, if the key is right, leaves at interface 2.
func transitFrame(t *testing.T, in *net.Interface, key Key) []byte {
	t.Helper()
	return sizedTransitFrame(t, in, key, 64)
}

// sizedTransitFrame is transitFrame with a payload of the given number of bytes, and with changes.
func sizedTransitFrame(t *testing.T, in *net.Interface, key Key, size int, changes ...func(*scionpkt.Spec)) []byte {
	t.Helper()
	c := testConfig(1)
	hop := func(in, out uint16) scionpkt.Hop {
		return scionpkt.Hop{ConsIngress: in, ConsEgress: out, ExpTime: 63}
	}
	own := hop(1, 2)
	own.Own = true
	s := scionpkt.Spec{
		Outer:    scionpkt.Outer{DstMAC: [6]byte(in.HardwareAddr), Src: c.Links[1].Remote, Dst: c.Links[1].Local},
		External: true,
		Key:      key,
		SrcIA:    testIA + 1,
		DstIA:    testIA + 2,
		SrcHost:  addr.MustParseHost("192.0.2.1"),
		DstHost:  addr.MustParseHost("192.0.2.2"),
		Segments: []scionpkt.Segment{{
			ConsDir:   true,
			Timestamp: uint32(time.Now().Add(-time.Minute).Unix()),
			Beta:      7,
			Hops:      []scionpkt.Hop{hop(0, 5), own, hop(6, 0)},
		}},
		CurrHF:  1,
		Payload: scionpkt.Payload{Size: size, SrcPort: 1000, DstPort: 2000, HopByHop: -1, EndToEnd: -1},
	}
	for _, change := range changes {
		change(&s)
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openWay makes interface 2 lead out of a device and loads the key.
func openWay(t *testing.T, inst *Instance, out *net.Interface) {
	t.Helper()
	n := linkIndex(t, inst.Config(), "2")
	hop := NextHop{IfIndex: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	if err := inst.SetLinkNextHop(n, hop); err != nil {
		t.Fatal(err)
	}
	if err := inst.SetLinkUp(n, true); err != nil {
		t.Fatal(err)
	}
	if err := inst.AddKey(0, testKey); err != nil {
		t.Fatal(err)
	}
}

// feed puts a frame through the program count times, as if it came from an interface.
func feed(t *testing.T, inst *Instance, frame []byte, iface string, count int) {
	t.Helper()
	for range count {
		if _, _, err := inst.TestRun(frame, iface); err != nil {
			t.Fatal(err)
		}
	}
}

// counted returns an interface's packets by verdict and reason, and all of them together.
func counted(t testing.TB, inst *Instance, iface string) (port stats.Port, byReason map[string]uint64, total uint64) {
	t.Helper()
	ports, err := inst.Ports()
	if err != nil {
		t.Fatal(err)
	}
	byReason = make(map[string]uint64)
	for _, p := range ports {
		if p.Interface != iface {
			continue
		}
		port = p
		for _, r := range p.Reasons {
			byReason[r.Verdict+" "+r.Name] += r.Packets
		}
		total, _ = p.Total()
	}
	if port.Interface == "" {
		t.Fatalf("no counters of %s in %+v", iface, ports)
	}
	return port, byReason, total
}

// tree lists what is pinned for this network namespace.
func tree(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	dir := spaceDir(t)
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			fmt.Fprintln(&b, strings.TrimPrefix(path, dir))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// holderEnv makes this test binary attach the interfaces it names, say so, and wait to be killed.
const holderEnv = "CULVERT_TEST_HOLD"

func hold(interfaces string) int {
	inst, err := Attach(Options{Name: "br1", Interfaces: strings.Split(interfaces, ",")}, testConfig(1, 2))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("attached")
	time.Sleep(time.Hour)
	inst.Close()
	return 0
}

// startHolder returns a process that serves br1 in this network namespace.
func startHolder(t *testing.T, interfaces string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderEnv+"="+interfaces)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(c) })
	said := make([]byte, 1024)
	n, err := out.Read(said)
	if s := strings.TrimSpace(string(said[:n])); s != "attached" {
		t.Fatalf("the other process said %q, %v", s, err)
	}
	return c
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}
