// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/testbed"
)

// blast runs Blast out of a device, on a thread in its namespace.
func blast(from End, o BlastOptions) (r *BlastReport, err error) {
	o.Device = from.Name
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	err = from.Netns.Do(func() error {
		r, err = Blast(context.Background(), o)
		return err
	})
	return r, err
}

// Blast and ListenOn report the same packets.
func TestBlastIntoListenOn(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	reports := make(chan *ListenReport, 1)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	progress, ready := io.Pipe()
	go func() {
		var r *ListenReport
		err := to.Netns.Do(func() (err error) {
			r, err = ListenOn(ctx, ListenOptions{Device: to.Name, Flows: 50, Progress: ready})
			return err
		})
		if err != nil {
			t.Error(err)
		}
		ready.CloseWithError(io.EOF)
		reports <- r
	}()
	if _, err := progress.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	var arrived atomic.Uint64
	go func() {
		for lines := bufio.NewScanner(progress); lines.Scan(); {
			var mpps float64
			var n uint64
			if _, err := fmt.Sscanf(lines.Text(), to.Name+": %f Mpps, %d packets", &mpps, &n); err == nil {
				arrived.Store(n)
			}
		}
	}()
	sent, err := blast(from, BlastOptions{Count: 50_000, Stamp: true, UDP: UDPTraffic{Sizes: IMIX(), Flows: 50}, CPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); arrived.Load() < sent.Packets-sent.Dropped && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	got := <-reports
	if sent.Packets != 50_000 || got.Packets+sent.Dropped != sent.Packets || got.Order == nil || got.Latency == nil {
		t.Fatalf("sent %+v, received %+v", sent, got)
	}
	if sent.Dropped == 0 && (got.Bytes != sent.Bytes || got.Order.Missing != 0) || got.Order.Packets != got.Packets ||
		got.Order.Reordered+got.Order.Duplicates != 0 || got.Latency.P50 <= 0 || got.Latency.Packets != got.Packets {
		t.Errorf("sent %+v, received %+v", sent, got)
	}
	for _, write := range []func(io.Writer) error{sent.WriteText, got.WriteText} {
		var text bytes.Buffer
		if err := write(&text); err != nil || !strings.Contains(text.String(), " packets, ") {
			t.Errorf("%q, error %v", &text, err)
		}
	}
	for _, write := range []func(io.Writer) error{sent.WriteJSON, got.WriteJSON} {
		var text bytes.Buffer
		var fields map[string]any
		if err := errors.Join(write(&text), json.Unmarshal(text.Bytes(), &fields)); err != nil || fields["packets"] == 0.0 {
			t.Errorf("%s, error %v", &text, err)
		}
	}
}

// Both generators send all frames of a file, with the Ethernet addresses in the options.
func TestBlastSendsAFile(t *testing.T) {
	testbed.NeedRoot(t)
	from, to, sink := testSink(t, SinkOptions{Tags: 30, TagOffset: tagAt})
	path := filepath.Join(t.TempDir(), "x.pcap")
	var file bytes.Buffer
	if err := writeFrames(&file, taggedFrames(30, 60, 200)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, generator := range []string{"kernel", "tcpreplay"} {
		r, err := blast(from, BlastOptions{File: path, Count: 3000, DstMAC: to.MAC, CPU: -1, Generator: generator})
		if err != nil || r.Packets != 3000 || r.Frames != 30 || r.Bytes != 1500*(60+200) {
			t.Errorf("%s: %+v, error %v", generator, r, err)
		}
	}
	settled(t, sink, 6000)
	tags, err := sink.Tags()
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range tags {
		if n != 200 {
			t.Errorf("frame %d arrived %d times", i, n)
		}
	}
}

// Blast reports that it has not reached a rate that no machine reaches.
func TestBlastReportsAMissedRate(t *testing.T) {
	testbed.NeedRoot(t)
	from, _, _ := testSink(t, SinkOptions{})
	u := UDPTraffic{Sizes: []int{60}}
	r, err := blast(from, BlastOptions{Rate: 1e9, Count: 100_000, UDP: u, CPU: -1})
	if err != nil || r.Reached || r.Err() == nil {
		t.Errorf("%+v, error %v", r, err)
	}
	var progress bytes.Buffer
	r, err = blast(from, BlastOptions{Rate: 50, Duration: 2500 * time.Millisecond, UDP: u, CPU: -1, Progress: &progress})
	// How much less than 125 depends on the machine.
	if err != nil || r.Packets == 0 || r.Packets > 125 || !strings.Contains(progress.String(), "cvg0: ") {
		t.Errorf("%+v, error %v, progress %q", r, err, &progress)
	}
}

func TestBlastRefusals(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	udp := func(u UDPTraffic) BlastOptions { return BlastOptions{UDP: u, Count: 1} }
	short := UDPTraffic{Sizes: []int{60}}
	// checkRefused checks that Blast refuses options with one line. option tells whether it must be an OptionError.
	checkRefused := func(t *testing.T, o BlastOptions, option bool) {
		t.Helper()
		_, err := blast(from, o)
		if kind := OptionError(""); err == nil || errors.As(err, &kind) != option || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v", err)
		}
	}
	t.Run("peer takes no frames", func(t *testing.T) { checkRefused(t, udp(short), false) })
	l, err := Listen(to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	loopback6, public4 := netip.MustParseAddr("::1"), netip.MustParseAddr("1.2.3.4")
	for _, tc := range []struct {
		name   string
		o      BlastOptions
		option bool
	}{
		{"frames shorter than their headers", udp(UDPTraffic{Sizes: []int{41}}), true},
		{"frames longer than any device takes", udp(UDPTraffic{Sizes: []int{70_000}}), true},
		{"frames longer than the MTU", udp(UDPTraffic{Sizes: []int{1515}}), false},
		{"no frame size", udp(UDPTraffic{}), true},
		{"negative number of flows", udp(UDPTraffic{Sizes: []int{60}, Flows: -1}), true},
		{"flows that take too much memory", udp(UDPTraffic{Sizes: []int{1500}, Flows: 1 << 20}), true},
		{"addresses of two families", udp(UDPTraffic{Sizes: []int{60}, Src: loopback6, Dst: public4}), true},
		{"IPv6 destination without a source", udp(UDPTraffic{Sizes: []int{80}, Dst: loopback6}), true},
		{"negative rate", BlastOptions{UDP: short, Rate: -1}, true},
		{"rate below one packet a second", BlastOptions{UDP: short, Rate: 0.5}, true},
		{"negative duration", BlastOptions{UDP: short, Duration: -1}, true},
		{"CPU that does not exist", BlastOptions{UDP: short, CPU: 4096}, true},
		{"Ethernet address of 8 bytes", BlastOptions{UDP: short, DstMAC: make([]byte, 8)}, true},
		{"unknown generator", BlastOptions{UDP: short, Generator: "trafgen"}, true},
		{"tcpreplay with stamps", BlastOptions{UDP: short, Generator: "tcpreplay", Stamp: true}, true},
		{"frames without room for a stamp", BlastOptions{UDP: UDPTraffic{Sizes: []int{57}}, Stamp: true}, false},
		{"file that does not exist", BlastOptions{File: "/nonexistent"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { checkRefused(t, tc.o, tc.option) })
	}
	if _, err := blast(End{Netns: from.Netns, Name: "cvnone"}, udp(short)); err == nil {
		t.Error("no device, no error")
	}
	if _, err := blast(End{Netns: from.Netns, Name: "lo"}, udp(short)); err == nil || !strings.Contains(err.Error(), "tcpreplay") {
		t.Errorf("lo: error %v", err)
	}
	_, err = ListenOn(context.Background(), ListenOptions{Device: "lo", Flows: -1})
	if kind := OptionError(""); !errors.As(err, &kind) {
		t.Errorf("negative flows: error %v", err)
	}
}

func TestBlastSparesTheDefaultRoute(t *testing.T) {
	testbed.NeedRoot(t)
	from, _, _ := testSink(t, SinkOptions{})
	if err := from.Assign(netip.MustParsePrefix("192.0.2.1/24")); err != nil {
		t.Fatal(err)
	}
	o := BlastOptions{UDP: UDPTraffic{Sizes: []int{60}}, Count: 1, CPU: -1}
	if _, err := blast(from, o); err != nil {
		t.Fatal(err)
	}
	route := &netlink.Route{LinkIndex: from.Index, Gw: []byte{192, 0, 2, 2}}
	if err := from.Netns.Netlink().RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	if r, err := blast(from, o); err != nil || r.Packets != 1 {
		t.Errorf("in a namespace that the machine is not reached by: %+v, error %v", r, err)
	}
	before := inHostNetns
	inHostNetns = func() bool { return true }
	defer func() { inHostNetns = before }()
	if _, err := blast(from, o); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error %v", err)
	}
	o.Force = true
	if r, err := blast(from, o); err != nil || r.Packets != 1 {
		t.Errorf("forced: %+v, error %v", r, err)
	}
}

// Each flow has one frame of each size, all with valid checksums.
func TestUDPTraffic(t *testing.T) {
	for _, u := range []UDPTraffic{
		{Sizes: IMIX(), Flows: 24},
		{Sizes: []int{100}, Flows: 70_000, Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2")},
	} {
		if err := u.Check(); err != nil {
			t.Fatal(err)
		}
		frames, err := u.Frames(End{MAC: []byte{2, 0, 0, 0, 0, 9}})
		if err != nil {
			t.Fatal(err)
		}
		flows := map[string]map[int]int{}
		for i, f := range frames {
			l, ok := scionpkt.Locate(f)
			if !ok || scionpkt.UDPSum(f, l) != 0xffff {
				t.Fatalf("frame %d is wrong: %x", i, f)
			}
			flow := string(f[l.UDP-8:l.UDP+4]) + string(f[14+8:14+24])
			if !l.IPv6 {
				flow = string(f[14+12 : l.UDP+4])
			}
			if flows[flow] == nil {
				flows[flow] = map[int]int{}
			}
			flows[flow][len(f)]++
		}
		want := map[int]int{}
		for _, size := range u.Sizes {
			want[size]++
		}
		for flow, got := range flows {
			if !maps.Equal(got, want) {
				t.Fatalf("flow %x has frames by length %v, want %v", flow, got, want)
			}
		}
		if len(flows) != u.Flows {
			t.Errorf("%d flows, want %d", len(flows), u.Flows)
		}
	}
}
