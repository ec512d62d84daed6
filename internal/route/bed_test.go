// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// patience bounds every wait. A test that passes does not wait nearly as long.
const patience = 2 * time.Minute

// fakePlane is a data plane in this process's memory.
type fakePlane struct {
	root4, blocks4, root6, blocks6 []uint32

	mu        sync.Mutex
	hops      map[uint32]routeplane.Hop
	used      map[uint32]time.Duration
	neighbors map[routeplane.Neighbor]uint32
	devs      map[int]routeplane.Dev
	own       []netip.Addr
	policy    routeplane.Policy
	until     [2]time.Duration
	attached  []string
	indexes   []int // returned by AttachedIndexes
	asked     int   // calls of AttachedIndexes
	// withdrawn counts how often the mirror of each family was disabled.
	withdrawn [2]int
}

func newFakePlane(blocks4, blocks6 int) *fakePlane {
	return &fakePlane{
		root4: make([]uint32, 1<<16), blocks4: make([]uint32, blocks4*256),
		root6: make([]uint32, 1<<16), blocks6: make([]uint32, blocks6*256),
		hops: map[uint32]routeplane.Hop{}, used: map[uint32]time.Duration{},
		neighbors: map[routeplane.Neighbor]uint32{}, devs: map[int]routeplane.Dev{},
		attached: []string{"cv0", "cv1"},
	}
}

func (p *fakePlane) Table4() (root, blocks []uint32) { return p.root4, p.blocks4 }
func (p *fakePlane) Table6() (root, blocks []uint32) { return p.root6, p.blocks6 }

func (p *fakePlane) SetHop(number uint32, hop routeplane.Hop) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number >= routeplane.MaxHops {
		return fmt.Errorf("next hop %d", number)
	}
	p.hops[number] = hop
	return nil
}

func (p *fakePlane) Touch(is6 bool, first, n int) {}
func (p *fakePlane) Settle()                      {}

func (p *fakePlane) HopUsed(number uint32) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used[number]
}

func (p *fakePlane) SetNeighbor(n routeplane.Neighbor, number uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.neighbors[n] = number
	return nil
}

func (p *fakePlane) DeleteNeighbor(n routeplane.Neighbor) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.neighbors, n)
	return nil
}

func (p *fakePlane) SetDev(index int, dev routeplane.Dev) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devs[index] = dev
	return nil
}

func (p *fakePlane) DeleteDev(index int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.devs, index)
	return nil
}

func (p *fakePlane) SetOwn4(addrs []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = addrs
	return nil
}

func (p *fakePlane) SetPolicy(policy routeplane.Policy) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.policy = policy
	return nil
}

func (p *fakePlane) SetCurrent(until4, until6 time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, until := range []time.Duration{until4, until6} {
		if until == 0 && p.until[i] != 0 {
			p.withdrawn[i]++
		}
		p.until[i] = until
	}
	return nil
}

func (p *fakePlane) Attached() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.attached...)
}

func (p *fakePlane) AttachedIndexes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return append([]int(nil), p.indexes...)
}

// ask reads the mirror as the programs do, but whether or not it is current.
func (p *fakePlane) ask(a netip.Addr) routeplane.Hop {
	p.mu.Lock()
	defer p.mu.Unlock()
	root, blocks := p.root6, p.blocks6
	key := a.As16()
	next := key[:]
	if a.Is4() {
		root, blocks = p.root4, p.blocks4
		next = next[12:]
	}
	take := func() (b int) {
		b, next = int(next[0]), next[1:]
		return b
	}
	index := 0
	for range (bits.Len(uint(len(root))) - 1) / 8 {
		index = index<<8 | take()
	}
	e := atomic.LoadUint32(&root[index]) // Run writes meanwhile
	for e&lpm.EntryBlock != 0 {
		e = atomic.LoadUint32(&blocks[int(e&lpm.EntryNumber)*256+take()])
	}
	return p.hops[e&lpm.EntryNumber]
}

// bed is a network namespace with three veth pairs to another, and a Run in it.
type bed struct {
	t         testing.TB
	own, peer *netlink.Handle
	ownNS     netns.NsHandle
	plane     *fakePlane
	status    *Status
	stop      func()
	log       *lockedLog
}

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newBed enters a fresh namespace and never leaves it. The thread ends with the test's goroutine, and both namespaces
// with the thread.
func newBed(t testing.TB, plane *fakePlane) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run the tests with sudo")
	}
	runtime.LockOSThread()
	peerNS, err := netns.New()
	check(t, err)
	t.Cleanup(func() { peerNS.Close() })
	ownNS, err := netns.New()
	check(t, err)
	t.Cleanup(func() { ownNS.Close() })
	b := &bed{t: t, plane: plane, ownNS: ownNS}
	b.own, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	check(t, err)
	t.Cleanup(b.own.Close)
	b.peer, err = netlink.NewHandleAt(peerNS, unix.NETLINK_ROUTE)
	check(t, err)
	t.Cleanup(b.peer.Close)
	for _, name := range []string{"cv0", "cv1", "cv2"} {
		check(t, b.own.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p",
			PeerNamespace: netlink.NsFd(peerNS)}))
		link, err := b.peer.LinkByName(name + "p")
		check(t, err)
		check(t, b.peer.LinkSetUp(link))
	}
	// With GRO at the peer, frames can be redirected to a veth.
	check(t, netns.Set(peerNS))
	for _, name := range []string{"cv0p", "cv1p", "cv2p"} {
		_, err = netdev.Ethtool(name, unix.ETHTOOL_SGRO, 1)
		check(t, err)
	}
	check(t, netns.Set(ownNS))
	b.sysctl("ipv6/conf/all/forwarding", "1")
	b.sysctl("ipv4/ip_forward", "1")
	b.ip(`link set lo up
		link set cv0 up
		link set cv1 up
		link set cv2 up
		addr add 10.9.0.1/24 dev cv0
		addr add 10.9.1.1/24 dev cv1
		addr add 10.9.2.1/24 dev cv2
		addr add fd09:0::1/64 dev cv0 nodad
		addr add fd09:1::1/64 dev cv1 nodad
		addr add fd09:2::1/64 dev cv2 nodad`)
	// The MAC address of a neighbor identifies it.
	for dev := range 3 {
		for host := 2; host < 10; host++ {
			b.ip(fmt.Sprintf(`neigh add 10.9.%d.%d dev cv%d lladdr %s nud permanent
				neigh add fd09:%d::%d dev cv%d lladdr %s nud permanent`,
				dev, host, dev, macOf(netip.AddrFrom4([4]byte{10, 9, byte(dev), byte(host)})),
				dev, host, dev, macOf(netip.MustParseAddr(fmt.Sprintf("fd09:%d::%d", dev, host)))))
		}
	}
	return b
}

// macOf is the MAC address of a gateway in the tests.
func macOf(a netip.Addr) net.HardwareAddr {
	if a.Is4() {
		b := a.As4()
		return net.HardwareAddr{2, 4, b[0], b[1], b[2], b[3]}
	}
	b := a.As16()
	return net.HardwareAddr{2, 6, b[0], b[1], b[3], b[15]}
}

// start starts Run and waits until it has read the tables.
func (b *bed) start(o Options) {
	b.t.Helper()
	b.begin(o)
	b.barrier()
}

// begin starts Run in a goroutine.
func (b *bed) begin(o Options) {
	b.t.Helper()
	b.log, b.status = &lockedLog{}, &Status{}
	o.Plane, o.Status = b.plane, b.status
	o.Log = slog.New(slog.NewTextHandler(b.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(b.ownNS); err != nil {
			done <- err
			return
		}
		done <- Run(ctx, o)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.stop)
}

func (b *bed) sysctl(name, value string) {
	b.t.Helper()
	check(b.t, os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
}

// ip runs commands of ip(8).
func (b *bed) ip(batch string) {
	b.t.Helper()
	if out, err := runIP(batch); err != nil {
		b.t.Fatalf("ip: %v: %s", err, out)
	}
}

func runIP(batch string, options ...string) (string, error) {
	args := append(options, "-batch", "-")
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(batch + "\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// wait waits for a condition.
func (b *bed) wait(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waiting for %s: %+v\n%s", what, b.status.Load(), b.log)
		}
	}
}

// barrier waits until both mirrors are current with all that has happened before.
func (b *bed) barrier() {
	b.t.Helper()
	b.barrierOf(0)
	b.barrierOf(1)
}

func (b *bed) barrierOf(family int) {
	b.t.Helper()
	now := monotonic()
	b.wait("a current mirror of "+familyNames[family], func() bool {
		b.plane.mu.Lock()
		defer b.plane.mu.Unlock()
		return b.plane.until[family] >= now+believeFor
	})
}

// clear waits until no dump is running or scheduled.
func (b *bed) clear() {
	b.t.Helper()
	b.barrier()
	b.wait("the tables to be read", func() bool { return !b.status.Load().Dumping })
	b.barrier()
}

// answer is what the kernel does with packets to an address, reduced to what a next hop has too.
type answer struct {
	action routeplane.Action
	dev    int
	mac    [6]byte
}

func answerOf(h routeplane.Hop) answer {
	switch h.Action {
	case routeplane.Forward:
		return answer{action: h.Action, dev: h.Dev, mac: h.DstMAC}
	case routeplane.Connected, routeplane.Elsewhere:
		return answer{action: h.Action, dev: h.Dev}
	}
	return answer{action: h.Action}
}

// kernel asks the kernel for the route of an address.
func (b *bed) kernel(a netip.Addr) (want answer, rt routeMessage) {
	b.t.Helper()
	family, size := unix.AF_INET, 32
	if a.Is6() {
		family, size = unix.AF_INET6, 128
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Dst_len: uint8(size),
		Flags: unix.RTM_F_LOOKUP_TABLE | unix.RTM_F_FIB_MATCH}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	got, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return answer{action: routeplane.None}, rt
	case errors.Is(err, unix.EHOSTUNREACH):
		return answer{action: routeplane.Unreachable}, rt
	case errors.Is(err, unix.EACCES):
		return answer{action: routeplane.Prohibit}, rt
	case errors.Is(err, unix.EINVAL):
		return answer{action: routeplane.Blackhole}, rt
	case err != nil:
		b.t.Fatalf("asking for the route to %s: %v", a, err)
	}
	if len(got) == 0 || !parseRoute(got[0], &rt) {
		b.t.Fatalf("asking for the route to %s: no answer", a)
	}
	// parseRoute leaves out the fields of a next hop object. They are needed here.
	gateway, dev := hopOfMessage(got[0])
	name := ""
	if link, err := b.own.LinkByIndex(dev); err == nil {
		name = link.Attrs().Name
	}
	switch {
	case rt.kind == unix.RTN_LOCAL || rt.kind == unix.RTN_BROADCAST || rt.kind == unix.RTN_ANYCAST || rt.kind == unix.RTN_MULTICAST:
		return answer{action: routeplane.Local}, rt
	case name != "cv0" && name != "cv1":
		return answer{action: routeplane.Elsewhere, dev: dev}, rt
	case gateway.IsValid():
		want = answer{action: routeplane.Forward, dev: dev}
		copy(want.mac[:], macOf(gateway))
		return want, rt
	}
	return answer{action: routeplane.Connected, dev: dev}, rt
}

func hopOfMessage(data []byte) (gateway netip.Addr, dev int) {
	for b := data[unix.SizeofRtMsg:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			return gateway, dev
		}
		b = rest
		switch kind {
		case unix.RTA_OIF:
			dev = int(u32(value))
		case unix.RTA_GATEWAY:
			gateway, _ = netip.AddrFromSlice(value)
		case unix.RTA_VIA:
			gateway = parseVia(value)
		}
	}
}

// compare checks the mirror against the kernel. It returns for how many addresses the mirror asks the kernel, which is
// allowed only where askable returns true.
func (b *bed) compare(addrs []netip.Addr, askable func(netip.Addr) bool) (asked int) {
	b.t.Helper()
	wrong := 0
	for _, a := range addrs {
		got := answerOf(b.plane.ask(a))
		want, rt := b.kernel(a)
		switch {
		case got == want:
		case got.action == routeplane.Ask && askable(a):
			asked++
		default:
			if wrong++; wrong < 10 {
				b.t.Errorf("%s: the mirror says %+v, the kernel %+v (%s table %d metric %d)", a, got, want, rt.prefix, rt.table, rt.metric)
			}
		}
	}
	if wrong > 0 {
		b.t.Fatalf("%d of %d addresses differ; %+v", wrong, len(addrs), b.status.Load())
	}
	return asked
}

func never(netip.Addr) bool { return false }

func (b *bed) index(name string) int {
	b.t.Helper()
	link, err := b.own.LinkByName(name)
	check(b.t, err)
	return link.Attrs().Index
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}
