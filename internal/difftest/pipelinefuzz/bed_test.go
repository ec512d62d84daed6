// SPDX-License-Identifier: Apache-2.0

// Package pipelinefuzz sends frames of all kinds through the complete program, with all stages on. It checks that each frame
// is counted once, that its verdict is carried out, and that nothing leaves that is malformed or that the judge of its stage
// would not send.
package pipelinefuzz

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/difftest/scionjudge"
	"culvert/internal/filter/pcap"
	"culvert/internal/lb/lbplane"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// stages says which stages a bed has.
type stages struct {
	filter, lb, scion, route bool
	// general takes the straight ways out.
	general bool
	// lease has the mirror of routes believed only for a time, as everywhere but in tests.
	lease bool
}

var allStages = stages{filter: true, lb: true, scion: true, route: true}

// deviceMTU is large enough for the longest frames.
const deviceMTU = 9216

// bed is a data plane in a network namespace of its own, and the state of the models.
type bed struct {
	on     stages
	net    *scionpkt.Network
	judge  *scionjudge.Judge
	inst   *datapath.Instance
	prog   *ebpf.Program
	limits *ebpf.Map // of punts, and of some answers
	// withLimit are the reasons that have one by default, limited what the limits have let through, nil without them.
	withLimit []uint32
	limited   *limits
	counters

	vips     []vip
	backends []lbplane.Backend
	plane    *lbplane.Plane
	router   *routeplane.Plane
	assigned map[flow]lbplane.BackendID
	kept     map[flow]lbplane.BackendID // of flows that a VIP keeps together
	strays   map[fragments]bool

	routes []prefix
	hops   map[uint32]routeplane.Hop
	devs   map[int]routeplane.Dev

	rules  []rule
	filter map[string]*pcap.Judge

	// calls passes functions to the thread in the namespace.
	calls   chan func()
	closers []func()
	seen    map[string]int
}

// newBed attaches the stages. The SCION network has all types of links and both families.
func newBed(t testing.TB, on stages) *bed {
	t.Helper()
	return newBedOf(t, on, scionpkt.RandomNetwork(rand.New(rand.NewPCG(14, 14)), scionpkt.Mixes()[0], uint32(time.Now().Unix())))
}

// newBedOf is newBed for a given SCION network.
func newBedOf(t testing.TB, on stages, network *scionpkt.Network) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	b := &bed{
		on: on, net: network, calls: make(chan func()),
		assigned: make(map[flow]lbplane.BackendID), kept: make(map[flow]lbplane.BackendID),
		strays: make(map[fragments]bool), seen: make(map[string]int),
	}
	if on.scion {
		j, err := scionjudge.New(b.net)
		if err != nil {
			t.Fatal(err)
		}
		b.judge = j
		t.Cleanup(j.Close)
	}
	ready, done := make(chan error), make(chan struct{})
	go func() {
		// The thread stays locked, so it ends with the goroutine, and the namespace with the thread.
		runtime.LockOSThread()
		defer close(done)
		ready <- b.setUp()
		for call := range b.calls {
			call()
		}
		for n := len(b.closers) - 1; n >= 0; n-- {
			b.closers[n]()
		}
	}()
	t.Cleanup(func() {
		close(b.calls)
		<-done
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return b
}

// do runs a function on the bed's thread.
func (b *bed) do(f func() error) error {
	done := make(chan error)
	b.calls <- func() { done <- f() }
	return <-done
}

func (b *bed) closer(f func()) { b.closers = append(b.closers, f) }

func (b *bed) setUp() error {
	ns, err := netns.New()
	if err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	b.closer(func() { ns.Close() })
	names, err := b.addDevices()
	if err != nil {
		return err
	}
	o := datapath.Options{Name: "fuzz", Interfaces: names, Temporary: true, General: b.on.general}
	if b.on.scion {
		c := scionjudge.Config(b.net)
		c.Services = []netip.Addr{b.servicesAt()}
		o.Parts = append(o.Parts, scionplane.NewPart(c))
	}
	if b.on.route {
		o.Parts = append(o.Parts, routeplane.NewPart(routeplane.Options{Trusting: !b.on.lease, Blocks4: 64, Blocks6: 64}))
	}
	if b.on.lb {
		// No flow expires between two beds that get the same frames one after the other, and both place it in the same bucket.
		const long = lbplane.MaxIdle
		o.Parts = append(o.Parts, lbplane.NewPart(lbplane.Options{
			RingSize: ringSize, Flows: 4096, Backends: 64, IdleNew: long, IdleTCP: long, IdleClosing: long, IdleUDP: long,
		}).WithSecret([6]uint32{1, 2, 3, 4, 5, 6}))
	}
	if b.inst, err = datapath.Attach(o); err != nil {
		return err
	}
	b.closer(b.inst.Close)
	b.ports = len(names)
	for _, fill := range []struct {
		on bool
		by func() error
	}{{b.on.scion, b.fillSCION}, {b.on.route, b.fillRoutes}, {b.on.lb, b.fillBalance}, {b.on.filter, b.fillFilter}, {true, b.findMaps}} {
		if !fill.on {
			continue
		}
		if err := fill.by(); err != nil {
			return err
		}
	}
	b.prog = b.inst.Entry()
	return nil
}

// port returns the name of a device of the network.
func port(n int) string { return fmt.Sprint("fz", n) }

// addDevices makes a veth pair for each device of the network, and the addresses and neighbors that the kernel has.
func (b *bed) addDevices() (names []string, err error) {
	for _, set := range []string{
		"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding", "ipv4/conf/default/forwarding",
	} {
		if err := os.WriteFile("/proc/sys/net/"+set, []byte("1"), 0); err != nil {
			return nil, err
		}
	}
	if err := disableIPv6(); err != nil {
		return nil, err
	}
	for _, set := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+set+"/rp_filter", []byte("0"), 0); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte("2"), 0); err != nil {
		return nil, err
	}
	for i := range b.net.Devices {
		name := port(i)
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: name, MTU: deviceMTU, HardwareAddr: net.HardwareAddr(b.net.Devices[i].MAC[:])},
			PeerName:  name + "p",
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return nil, fmt.Errorf("add veth %s: %w", name, err)
		}
		for _, end := range []string{name, name + "p"} {
			l, err := netlink.LinkByName(end)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return nil, fmt.Errorf("set %s up: %w", end, err)
			}
			if end == name {
				b.net.Devices[i].IfIndex = l.Attrs().Index
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// ip runs ip(8) in the bed's namespace.
func ip(args string) error {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// findMap finds a map of the program by its name.
func (b *bed) findMap(name string) (*ebpf.Map, error) {
	info, err := b.inst.Program().Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if info, err := m.Info(); err == nil && info.Name == name {
			return m, nil
		}
		m.Close()
	}
	return nil, fmt.Errorf("the program has no map %s", name)
}

// findMaps finds the maps to read, and removes the limits, so that each packet can be judged by itself.
func (b *bed) findMaps() (err error) {
	if b.counts, err = b.findMap("counters"); err != nil {
		return err
	}
	b.closer(func() { b.counts.Close() })
	if b.limits, err = b.findMap("limits"); err != nil {
		return err
	}
	b.closer(func() { b.limits.Close() })
	for i := range b.limits.MaxEntries() {
		var limit [3]uint64
		if err := b.limits.Lookup(i, &limit); err != nil {
			return fmt.Errorf("read limit %d: %w", i, err)
		}
		if limit[0] != 0 {
			b.withLimit = append(b.withLimit, i)
		}
		if err := b.limits.Put(i, make([]byte, b.limits.ValueSize())); err != nil {
			return fmt.Errorf("lift limit %d: %w", i, err)
		}
	}
	return nil
}

// servicesAt is the host of the AS with its services.
func (b *bed) servicesAt() netip.Addr { return b.net.Hosts[1].Addr }

// trial is a frame that comes in.
type trial struct {
	frame []byte
	in    int // device of the network
	first int // bytes in the first buffer, 0 for as many as there is room for
}

// outcome is what the program did with a frame.
type outcome struct {
	action  uint32
	frame   []byte
	reason  string // "fwd route"
	limited bool
	counted counter // for it, by the device that it came in by
	others  int     // further counters that have moved
}

// linearMax is the largest number of bytes in the first buffer of a test run.
const linearMax = 4096 - 256 - 320

// run runs the program on a frame. It must be called on the bed's thread.
func (b *bed) run(tr trial) (o outcome, err error) {
	first := len(tr.frame)
	if tr.first > 0 && tr.first < first {
		first = tr.first
	}
	opts := ebpf.RunOptions{
		Data: tr.frame, DataOut: make([]byte, len(tr.frame)+256),
		Context: bpfobj.XDPMD{DataEnd: uint32(first), IngressIfindex: uint32(b.net.Devices[tr.in].IfIndex)},
	}
	if o.action, err = b.prog.Run(&opts); err != nil {
		return o, fmt.Errorf("running a frame of %d bytes, %d in the first buffer: %w", len(tr.frame), first, err)
	}
	o.frame = opts.DataOut
	return o, b.counted(tr.in, &o)
}

// try runs the program on a frame, and returns what is wrong with the outcome.
func (b *bed) try(tr trial) (o outcome, err error) {
	err = b.do(func() error {
		if o, err = b.run(tr); err != nil {
			return err
		}
		b.seen[o.reason]++
		defer b.charge(tr, o)
		return b.check(tr, o)
	})
	if err != nil {
		err = fmt.Errorf("device %d, %d bytes, first buffer %d, left as %q with action %d: %w\nin:  %x\nout: %x", tr.in, len(tr.frame), tr.first,
			o.reason, o.action, err, tr.frame[:min(len(tr.frame), 400)], o.frame[:min(len(o.frame), 400)])
	}
	return o, err
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
