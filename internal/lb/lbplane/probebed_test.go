// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/decap/decapplane"
	"culvert/internal/host/netdev"
	"culvert/internal/lb/health"
	"culvert/internal/testbed"
)

// probeInsideEnv is set in a process that has a network namespace of its own.
const probeInsideEnv = "CULVERT_TEST_INSIDE"

// inside reports whether this process has a network namespace of its own. If not, inside runs the test in a process that has
// one. A thread with a namespace is not enough, because the checker opens sockets on any thread.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(probeInsideEnv) != "" {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), probeInsideEnv+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// probeBed is a load balancer in this process's namespace. Its route to the VIPs leads to a gateway behind up0 that does not
// exist. Backends are behind b1 and b2.
type probeBed struct {
	t        *testing.T
	inst     *datapath.Instance
	plane    *Plane
	probes   *Probes
	backends [3]*probeBackend // 1 and 2; 0 is not used
}

// probeVIPs are the addresses of the VIPs, by IP version.
var probeVIPs = map[int]netip.Addr{4: netip.MustParseAddr("192.0.2.1"), 6: netip.MustParseAddr("2001:db8::1")}

// probeBackend serves the VIPs in a namespace of its own. The namespace also decapsulates.
type probeBackend struct {
	space *testbed.Namespace
	dev   *net.Interface // of the load balancer, towards the backend
	mac   [6]byte
	// status is the HTTP status of answers, 0 for no answer. udp is the payload of UDP answers, a string.
	status atomic.Int64
	udp    atomic.Value

	mu     sync.Mutex
	served []func() // close the sockets and servers
}

func newProbeBed(t *testing.T) *probeBed {
	t.Helper()
	b := &probeBed{t: t}
	for _, which := range []string{"all", "default"} {
		testbed.Sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
		testbed.Sysctl(t, "ipv6/conf/"+which+"/accept_dad", "0")
	}
	up := testbed.AddVeth(t, "up0", "up0p")
	b.must(testbed.PrepareEnd("up0", "10.9.0.1/24", "fd00:9::1/64"))
	for _, gateway := range []string{"10.9.0.254", "fd00:9::254"} {
		b.must(netlink.NeighSet(&netlink.Neigh{
			LinkIndex: up.Index, IP: net.ParseIP(gateway), HardwareAddr: net.HardwareAddr(clientMAC[:]), State: netlink.NUD_PERMANENT,
		}))
		b.must(netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway), LinkIndex: up.Index}))
	}
	for n := 1; n < len(b.backends); n++ {
		b.backends[n] = newProbeBackend(t, n)
	}
	var err error
	o := Options{RingSize: testRing, Flows: 1000, Backends: 100, VIPs: 4}
	if b.inst, err = datapath.Attach(datapath.Options{Name: "lb", Interfaces: []string{"up0"}, Parts: []datapath.Part{NewPart(o)}, Temporary: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.inst.Close)
	b.plane, err = View(b.inst)
	b.must(err)
	for version, addr := range probeVIPs {
		b.must(b.plane.SetVIP(VIPKey{Addr: addr, Proto: protoTCP, Port: probeHTTPPort}, VIP{Number: uint32(version % 4), Empty: true}))
	}
	b.probes = mustAttachProbes(t, b.inst)
	return b
}

func (b *probeBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func newProbeBackend(t *testing.T, n int) *probeBackend {
	t.Helper()
	k := &probeBackend{space: testbed.NewNamespace(t)}
	name := "b" + strconv.Itoa(n)
	k.dev = testbed.AddVeth(t, name, name+"p")
	k.mac = [6]byte(testbed.Device(t, name+"p").HardwareAddr)
	k.space.Take(t, name+"p")
	if err := testbed.PrepareEnd(name, fmt.Sprintf("10.1.%d.1/24", n), fmt.Sprintf("fd00:1:%d::1/64", n)); err != nil {
		t.Fatal(err)
	}
	var pins string
	k.space.Must(t, func() error {
		for _, which := range []string{"all", "default"} {
			if err := testbed.WriteSysctl("ipv4/conf/"+which+"/rp_filter", "0"); err != nil {
				return err
			}
		}
		if err := errors.Join(testbed.AddToLo(probeVIPs[4], probeVIPs[6]), testbed.PrepareEnd(name+"p", k.addr(n, 4).String()+"/24", k.addr(n, 6).String()+"/64")); err != nil {
			return err
		}
		for _, gateway := range []string{fmt.Sprintf("10.1.%d.1", n), fmt.Sprintf("fd00:1:%d::1", n)} {
			if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
				return fmt.Errorf("default route by %s: %w", gateway, err)
			}
		}
		pins = testbed.SpaceDir(t)
		return decapplane.Attach([]string{name + "p"}, decapplane.Options{GUEPort: decapplane.DefaultGUEPort})
	})
	t.Cleanup(func() { os.RemoveAll(pins) })
	k.status.Store(200)
	k.udp.Store("pong")
	k.start(t)
	return k
}

// addr returns the address of backend n.
func (k *probeBackend) addr(n, version int) netip.Addr {
	if version == 4 {
		return netip.AddrFrom4([4]byte{10, 1, byte(n), 2})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:1:%d::2", n))
}

// Ports of a backend's services.
const (
	probeHTTPPort = 80
	probeUDPPort  = 53
)

// start serves the VIPs.
func (k *probeBackend) start(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.space.Must(t, func() error {
		for version, vip := range probeVIPs {
			l, err := net.Listen("tcp"+strconv.Itoa(version), netip.AddrPortFrom(vip, probeHTTPPort).String())
			if err != nil {
				return err
			}
			server := &http.Server{Handler: http.HandlerFunc(k.serve)}
			k.served = append(k.served, func() { server.Close() })
			go func() { _ = server.Serve(l) }()
			u, err := net.ListenPacket("udp"+strconv.Itoa(version), netip.AddrPortFrom(vip, probeUDPPort).String())
			if err != nil {
				return err
			}
			k.served = append(k.served, func() { u.Close() })
			go k.serveUDP(u)
		}
		return nil
	})
	t.Cleanup(k.kill)
}

// kill closes all sockets, as the end of a serving process would.
func (k *probeBackend) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, end := range k.served {
		end()
	}
	k.served = nil
}

func (k *probeBackend) serve(w http.ResponseWriter, r *http.Request) {
	status := k.status.Load()
	if status == 0 {
		<-r.Context().Done()
		return
	}
	w.WriteHeader(int(status))
}

func (k *probeBackend) serveUDP(c net.PacketConn) {
	b := make([]byte, 1500)
	for {
		_, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(k.udp.Load().(string)), from)
	}
}

// backend writes a backend whose packets go to backends[n] with an outer header of an IP version. It returns the mark for its
// probes.
func (b *probeBed) backend(number uint32, n, version int, encap Encap) uint32 {
	b.t.Helper()
	k := b.backends[n]
	backend := Backend{
		ID: NewBackendID(number, 1), Addr: k.addr(n, version), Encap: encap, GUEPort: 6080, Used: true,
		Source: map[int]netip.Prefix{4: netip.MustParsePrefix("10.200.0.0/16"), 6: netip.MustParsePrefix("fd00:200::/64")}[version],
		Hop:    Hop{Port: k.dev.Index, SrcMAC: [6]byte(k.dev.HardwareAddr), DstMAC: k.mac, MTU: 1500},
	}
	b.must(b.plane.SetBackend(backend))
	return ProbeMark(backend.ID)
}

// probeReport is one call of a Checker's Report.
type probeReport struct {
	id      uint32
	result  health.Result
	changed bool
}

// start checks targets until the function that it returns is called.
func (b *probeBed) start(targets []health.Target) (reports chan probeReport, stop func()) {
	b.t.Helper()
	reports = make(chan probeReport, 1<<16)
	ctx, cancel := context.WithCancel(b.t.Context())
	c := health.New(ctx, health.Options{
		Report: func(id uint32, r health.Result, changed bool) { reports <- probeReport{id, r, changed} },
		Ready:  func(t health.Target) error { return b.probes.Ready(t.Addr.Addr(), t.Mark) },
	})
	for n := range targets {
		targets[n].Check = targets[n].Check.WithDefaults()
		b.must(targets[n].Check.Validate())
	}
	c.Set(targets)
	stop = func() {
		cancel()
		c.Wait()
	}
	b.t.Cleanup(stop)
	return reports, stop
}

// offload turns the checksum offload of a device's egress on (1) or off (0).
func offload(t *testing.T, name string, on uint32) {
	t.Helper()
	if _, err := netdev.Ethtool(name, unix.ETHTOOL_STXCSUM, on); err != nil {
		t.Fatal(err)
	}
}
