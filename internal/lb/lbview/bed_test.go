// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// patience bounds every wait. Tests that pass wait much shorter.
const patience = 30 * time.Second

// bed is a load balancer on lb0 whose backends are behind out0.
type bed struct {
	t    *testing.T
	inst *datapath.Instance
	view *view
	in   *net.Interface
}

// pins has the directories of pins of running tests, to be removed if the tests are interrupted.
var pins sync.Map

func TestMain(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		pins.Range(func(dir, _ any) bool {
			_ = os.RemoveAll(dir.(string))
			return true
		})
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ip runs ip(8) in the test's network namespace.
func ip(t *testing.T, args string) { t.Helper(); _ = ipOut(t, args) }

// ipOut is ip with the output.
func ipOut(t *testing.T, args string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
	return string(out)
}

// newBed attaches a load balancer with VIPs in a new network namespace. The next hops of all backends are known.
func newBed(t *testing.T, o lbplane.Options, vips ...lb.VIP) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and the namespace with it
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, args := range []string{"link set lo up", "link add lb0 type veth peer name lb0p", "link add out0 type veth peer name out0p"} {
		ip(t, args)
	}
	for _, dev := range []string{"lb0", "lb0p"} { // the kernel sends no packets of its own
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/disable_ipv6", []byte("1"), 0))
	}
	for _, args := range []string{
		"link set lb0 up", "link set lb0p up", "link set out0 up", "link set out0p up",
		"addr add 10.0.0.1/24 dev out0", "addr add fd00::1/64 dev out0 nodad",
	} {
		ip(t, args)
	}
	for n := 11; n < 20; n++ {
		ip(t, fmt.Sprintf("neigh replace 10.0.0.%d lladdr 02:00:00:00:00:%d dev out0 nud permanent", n, n))
		ip(t, fmt.Sprintf("neigh replace fd00::%d lladdr 02:00:00:00:06:%d dev out0 nud permanent", n, n))
	}
	// A veth accepts redirected frames only while its peer has NAPI on.
	if out, err := exec.Command("ethtool", "-K", "out0p", "gro", "on").CombinedOutput(); err != nil {
		t.Fatalf("ethtool: %v: %s", err, out)
	}
	b := &bed{t: t}
	var err error
	b.inst, err = datapath.Attach(datapath.Options{Name: "edge", Interfaces: []string{"lb0"}, Parts: []datapath.Part{lbplane.NewPart(o)}})
	must(t, err)
	pins.Store(b.inst.Pins(), true)
	t.Cleanup(func() {
		pins.Delete(b.inst.Pins())
		if err := b.inst.DetachAll(); err != nil {
			t.Error(err)
		}
		b.inst.Close()
	})
	b.in, err = net.InterfaceByName("lb0")
	must(t, err)
	must(t, lb.Edit(b.inst, func(s *lb.State) error {
		s.Source4, s.Source6 = netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")
		s.VIPs = vips
		return nil
	}))
	b.resolve()
	return b
}

// resolve finds the next hops of all backends, and reads the state again.
func (b *bed) resolve() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	missing, err := lb.Resolve(ctx, b.inst)
	must(b.t, err)
	if len(missing) > 0 {
		b.t.Fatalf("no next hop to %v", missing)
	}
	b.read()
}

// read reads the state of the data plane for b.view.
func (b *bed) read() {
	b.t.Helper()
	v, err := newView(b.inst)
	must(b.t, err)
	b.view = v
}

func service(t *testing.T, s string) lb.Service {
	t.Helper()
	out, err := lb.ParseService(s)
	must(t, err)
	return out
}

// vip returns a VIP. Backends are written as "10.0.0.11 ipip 1": address, encapsulation and weight.
func vip(t *testing.T, s string, change func(*lb.VIP), backends ...string) lb.VIP {
	t.Helper()
	v := lb.VIP{Service: service(t, s), Hash: lb.HashFlow, OnFailure: lb.FailKeep, Encap: lb.EncapIPIP}
	for _, text := range backends {
		var addr string
		b := lb.Backend{}
		if _, err := fmt.Sscan(text, &addr, &b.Encap, &b.Weight); err != nil {
			t.Fatal(err)
		}
		b.Addr = netip.MustParseAddr(addr)
		if b.Encap == lb.EncapGUE {
			b.GUEPort = lb.GUEPort
		}
		v.Backends = append(v.Backends, b)
	}
	if change != nil {
		change(&v)
	}
	return v
}

// packet builds a frame from a client to a service. tcp is not used for UDP services.
func (b *bed) packet(client netip.AddrPort, to lb.Service, tcp *layers.TCP, payload int) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.in.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	var network interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	proto := layers.IPProtocol(to.Protocol)
	if to.Addr.Is4() {
		network = &layers.IPv4{Version: 4, TTL: 64, Protocol: proto, Flags: layers.IPv4DontFragment, SrcIP: client.Addr().AsSlice(), DstIP: to.Addr.AsSlice()}
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		network = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: proto, SrcIP: client.Addr().AsSlice(), DstIP: to.Addr.AsSlice()}
	}
	var transport gopacket.SerializableLayer
	if to.Protocol == lb.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(client.Port()), DstPort: layers.UDPPort(to.Port)}
		must(b.t, udp.SetNetworkLayerForChecksum(network))
		transport = udp
	} else {
		tcp.SrcPort, tcp.DstPort = layers.TCPPort(client.Port()), layers.TCPPort(to.Port)
		must(b.t, tcp.SetNetworkLayerForChecksum(network))
		transport = tcp
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	must(b.t, gopacket.SerializeLayers(buf, opts, eth, network, transport, gopacket.Payload(make([]byte, payload))))
	return buf.Bytes()
}

// run runs the program on a frame. It returns verdict and reason, as "fwd lb-flow", and the frame that leaves.
func (b *bed) run(frame []byte) (reason string, out []byte) {
	b.t.Helper()
	count := func() map[string]uint64 {
		ports, err := b.inst.Ports()
		must(b.t, err)
		all := make(map[string]uint64)
		for _, r := range ports[0].Reasons {
			all[r.Verdict+" "+r.Name] = r.Packets
		}
		return all
	}
	before := count()
	_, out, err := b.inst.TestRun(frame, "lb0")
	must(b.t, err)
	for name, n := range count() {
		if n != before[name] {
			return name, out
		}
	}
	b.t.Fatal("a packet was not counted")
	return "", nil
}
