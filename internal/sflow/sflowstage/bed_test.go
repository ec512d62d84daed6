// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
	"golang.org/x/sys/unix"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/pcap"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

const bedName = "router"

func TestMain(m *testing.M) { testbed.Main(m) }

// bed is an IP router and a SCION router with a filter in this network namespace, with the interfaces west and east, and a collector.
// Frames are sent by the peer of west, and forwarded to a neighbor on east.
type bed struct {
	t          *testing.T
	inst       *datapath.Instance
	west, east *net.Interface
	vlan       *net.Interface // VLAN 20 of east, if it is there
	peer       *testbed.Namespace
	from       int // packet socket on the peer of west
	westPeer   *net.Interface
	collector  *net.UDPConn
	workers    []int
	log        syncBuffer

	served  *prepared
	end     context.CancelCauseFunc
	serving sync.WaitGroup
}

type syncBuffer struct {
	sync.Mutex
	strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.Lock()
	defer b.Unlock()
	return b.Builder.Write(p)
}

func (b *syncBuffer) String() string {
	b.Lock()
	defer b.Unlock()
	return b.Builder.String()
}

func newBed(t *testing.T, workers ...int) *bed {
	t.Helper()
	testbed.InNamespace(t)
	b := &bed{t: t, peer: testbed.NewNamespace(t), workers: workers}
	b.west, b.east = testbed.AddVeth(t, "west", "westp"), testbed.AddVeth(t, "east", "eastp")
	for _, which := range []string{"all", "default", "west", "east"} {
		testbed.Sysctl(t, "ipv4/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
	}
	b.westPeer = testbed.Device(t, "westp")
	b.peer.Take(t, "westp")
	b.peer.Take(t, "eastp")
	b.peer.Must(t, func() (err error) {
		for _, name := range []string{"westp", "eastp"} {
			if err := testbed.WriteSysctl("ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil {
				return err
			}
			testbed.IP(t, "link set "+name+" up")
		}
		b.from, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(b.from) })
	for _, cmd := range []string{
		"link set lo up", "addr add 10.1.0.1/24 dev west", "addr add 10.2.0.1/24 dev east",
		"neigh replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"neigh replace 10.1.0.2 lladdr 02:00:00:00:00:01 dev west nud permanent",
		"route add 192.0.2.0/24 via 10.2.0.9", "route add blackhole 198.51.100.0/24",
	} {
		testbed.IP(t, cmd)
	}
	b.listen(0)
	t.Cleanup(func() {
		if b.inst == nil {
			return
		}
		b.stop(nil)
		b.must(b.served.Close())
		_ = b.inst.DetachAll()
		b.inst.Close()
	})
	return b
}

// listen opens the collector.
func (b *bed) listen(port int) {
	b.t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	b.must(err)
	raw, err := conn.SyscallConn()
	b.must(err)
	var refused error
	b.must(raw.Control(func(fd uintptr) { // by force: the kernel's limit is lower
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	}))
	b.must(refused)
	b.collector = conn
	b.t.Cleanup(func() { conn.Close() })
}

// address is that of the collector.
func (b *bed) address() netip.AddrPort { return b.collector.LocalAddr().(*net.UDPAddr).AddrPort() }

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// plan reads a table [sflow].
func (b *bed) plan(table string) *plan {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "culvert.toml")
	text := fmt.Sprintf("interfaces = [\"west\", \"east\"]\n[sflow]\ncollector = \"%s\"\n%s", b.address(), table)
	b.must(os.WriteFile(path, []byte(text), 0o600))
	node, err := config.Load(path, []config.Part{{Name: Stage{}.Name(), New: Stage{}.Table}})
	b.must(err)
	p, err := Stage{}.Plan(stage.File{Path: path, Node: node})
	b.must(err)
	return p.(*plan)
}

// serve brings a table into force, and serves it. It replaces what was served before, as a reload does.
func (b *bed) serve(table string) {
	b.t.Helper()
	p := b.plan(table)
	start := stage.Start{Process: true, Log: slog.New(slog.NewTextHandler(&b.log, nil))}
	var next stage.Prepared
	var err error
	if b.served != nil {
		next, err = p.Succeed(b.t.Context(), start, b.served)
	} else {
		next, err = p.Prepare(b.t.Context(), start)
	}
	b.must(err)
	o := datapath.Options{
		Name: bedName, Interfaces: []string{"west", "east"}, Workers: datapath.Workers{CPUs: b.workers}, Former: b.inst,
		Parts: append(scionbed.Parts(scionbed.Config(1, 2)), filterplane.NewPart(), routeplane.NewPart(routeplane.Options{NoMirror: true}), next.Part()),
	}
	former, before := b.inst, b.served
	if former != nil {
		keep, err := former.Fits(o)
		b.must(err)
		b.stop(stage.ErrSucceeded)
		if keep {
			b.must(former.Recommit(func(h *datapath.Instance) error { return next.Commit(b.t.Context(), h, func() error { return nil }) }))
			b.must(before.Close())
			b.begin(next.(*prepared))
			return
		}
	}
	o.Begin = func(inst *datapath.Instance) error {
		if err := b.setDevs(inst); err != nil {
			return err
		}
		return next.Commit(b.t.Context(), inst, func() error { return nil })
	}
	b.inst, err = datapath.Attach(o)
	b.must(err)
	if former == nil {
		scionbed.Open(b.t, scionplane.Of(b.inst), b.east)
	} else {
		b.must(before.Close())
		former.Close()
	}
	b.begin(next.(*prepared))
}

func (b *bed) begin(p *prepared) {
	b.served = p
	ctx, cancel := context.WithCancelCause(context.Background())
	b.end = cancel
	ready := make(chan bool)
	b.serving.Go(func() {
		if err := p.Serve(ctx, func() { close(ready) }); !errors.Is(err, context.Canceled) {
			b.t.Errorf("Serve: %v", err)
		}
	})
	<-ready
}

// stop ends serving.
func (b *bed) stop(cause error) {
	b.end(cause)
	b.serving.Wait()
}

func (b *bed) setDevs(inst *datapath.Instance) error {
	p, err := routeplane.Open(inst)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, dev := range []*net.Interface{b.east, b.west} {
		if err := p.SetDev(dev.Index, routeplane.Dev{Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Forward6: true, Xmit: true}); err != nil {
			return err
		}
	}
	if b.vlan == nil {
		return nil
	}
	return p.SetDev(b.vlan.Index, routeplane.Dev{
		Port: b.east.Index, VLAN: 0x1000 | 20, MAC: [6]byte(b.east.HardwareAddr), Forward4: true, Forward6: true, Xmit: true,
	})
}

// drops makes the filter drop what an expression matches.
func (b *bed) drops(expression string) {
	b.t.Helper()
	code, err := pcap.Compile(expression)
	b.must(err)
	b.must(filterplane.Edit(b.inst, func(f *filterplane.Filter) error {
		f.Rules = []filterplane.Rule{{Name: "no", Action: filterplane.Drop, Code: code}}
		return nil
	}))
}

// packet returns a UDP packet for the router.
func (b *bed) packet(dst string, ttl uint8, port, payload int) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.west.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{
		Version: 4, TTL: ttl, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(10, 1, 0, 2), DstIP: net.ParseIP(dst), Flags: layers.IPv4DontFragment,
	}
	udp := &layers.UDP{SrcPort: 1000, DstPort: layers.UDPPort(port)}
	b.must(udp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp,
		gopacket.Payload(bytes.Repeat([]byte("data"), payload/4))))
	return buf.Bytes()
}

// send sends a frame to west.
func (b *bed) send(frame []byte) {
	b.t.Helper()
	for {
		err := unix.Sendto(b.from, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.westPeer.Index})
		if !errors.Is(err, unix.EINTR) {
			b.must(err)
			return
		}
	}
}

// received is what a collector has received.
type received struct {
	raw       [][]byte
	flows     []decoder.FlowSample
	discards  []decoder.DropSample
	counters  []decoder.CounterSample
	datagrams []decoder.Packet
}

// receive reads datagrams until enough says so, or fails the test after some time.
func (b *bed) receive(what string, enough func(*received) bool) *received {
	b.t.Helper()
	all := new(received)
	end := time.Now().Add(testbed.Patience)
	for buf := make([]byte, 1<<16); !enough(all); {
		b.must(b.collector.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := b.collector.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
			continue
		}
		if err != nil {
			b.t.Fatalf("%s: %v, with %d flow samples, %d discards, %d counters", what, err, len(all.flows), len(all.discards), len(all.counters))
		}
		all.decode(b.t, bytes.Clone(buf[:n]))
	}
	return all
}

func (r *received) decode(t *testing.T, datagram []byte) {
	t.Helper()
	var p decoder.Packet
	if err := decoder.DecodeMessageVersion(bytes.NewBuffer(datagram), &p); err != nil {
		t.Fatalf("decoding %x: %v", datagram, err)
	}
	if int(p.SamplesCount) != len(p.Samples) {
		t.Fatalf("%d samples, %d announced", len(p.Samples), p.SamplesCount)
	}
	r.raw, r.datagrams = append(r.raw, datagram), append(r.datagrams, p)
	for _, s := range p.Samples {
		switch s := s.(type) {
		case decoder.FlowSample:
			r.flows = append(r.flows, s)
		case decoder.DropSample:
			r.discards = append(r.discards, s)
		case decoder.CounterSample:
			r.counters = append(r.counters, s)
		default:
			t.Fatalf("a sample of type %T", s)
		}
	}
}

// record returns the record of a type, the zero value if there is none.
func record[T any](records []decoder.FlowRecord) (data T, ok bool) {
	for _, r := range records {
		if data, ok := r.Data.(T); ok {
			return data, true
		}
	}
	return data, false
}

// header returns the record with the first bytes of the frame, without the padding that the decoder leaves behind them.
func header(records []decoder.FlowRecord) decoder.SampledHeader {
	h, _ := record[decoder.SampledHeader](records)
	h.HeaderData = h.HeaderData[:min(len(h.HeaderData), int(h.OriginalLength))]
	return h
}
