// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// inNamespace moves the test into a network namespace of its own with a veth pair, cvb0 and cvb1.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a network namespace and loads eBPF programs: run it as root")
	}
	// The thread stays locked, so it ends with the goroutine.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cvb0"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "cvb1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cvb0", "cvb1"} {
		if err := netlink.LinkSetUp(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBlastIntoSink runs 'gen blast' and 'bench sink', each in a process of its own, at the two ends of a veth.
func TestBlastIntoSink(t *testing.T) {
	inNamespace(t)
	page := newAnswers(t)
	type counted struct {
		Packets, Bytes, Dropped uint64
		Order                   *struct{ Packets, Missing, Duplicates, Reordered uint64 }
		Latency                 *struct {
			P50 float64 `json:"p50_ns"`
		}
	}
	for _, tt := range []struct {
		blast, sink string
		stamped     bool
	}{
		{"--size 60,138 --flows 10 --stamp --rate 20000", "--flows 10", true},
		{"--size imix --generator tcpreplay --port 7 --dst-mac 02:00:00:00:00:07 --src-mac 02:00:00:00:00:08", "--port 7", false},
		{"--size 80 --src 2001:db8::1 --dst 2001:db8::2 --cpu 0", "--port 9", false},
	} {
		sink := startCulvert(t, append(strings.Fields("bench sink cvb1 -j --seconds 60"), strings.Fields(tt.sink)...)...)
		sink.waitFor(t, "listening")
		status, out, errs := culvert(t, append(strings.Fields("gen blast cvb0 -j -n 6000"), strings.Fields(tt.blast)...)...)
		var sent, seen counted
		// On a busy machine a run may miss its rate, and reports that.
		if err := json.Unmarshal([]byte(out), &sent); err != nil || status != 0 && !strings.Contains(errs, "asked for") {
			t.Fatalf("%s: status %d, error %v: %s", tt.blast, status, err, errs)
		}
		text := sink.interrupt(t)
		page.printed(t, "gen blast", out)
		page.printed(t, "bench sink", text)
		if err := json.Unmarshal([]byte(text), &seen); err != nil {
			t.Fatalf("%s: %v in %s", tt.sink, err, text)
		}
		if sent.Packets != 6000 || seen.Packets+sent.Dropped != sent.Packets {
			t.Errorf("%s: sent %+v, seen %+v", tt.blast, sent, seen)
		}
		if (seen.Order != nil) != tt.stamped || (seen.Latency != nil) != tt.stamped {
			t.Errorf("%s: order %v, latency %v", tt.sink, seen.Order, seen.Latency)
		}
		if tt.stamped && (seen.Order.Missing != sent.Dropped || seen.Order.Reordered != 0 || seen.Latency.P50 <= 0) {
			t.Errorf("%s: order %+v, latency %+v", tt.sink, seen.Order, seen.Latency)
		}
	}
}

func TestBlastAndSinkUsage(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		status     int
	}{
		{"gen blast", "takes 1 argument, not 0", 2},
		{"gen blast x --rate -1", "a rate of -1", 2},
		{"gen blast x -n 0", "must be above 0", 2},
		{"gen blast x --seconds 0", "must be above 0", 2},
		{"gen blast x --size 9", "frames of 9 bytes", 2},
		{"gen blast x --size big", "no length in bytes", 2},
		{"gen blast x --dst nowhere", "--dst: ", 2},
		{"gen blast x --dst-mac nowhere", "--dst-mac: ", 2},
		{"gen blast x -r f.pcap --size 60", "-r takes those of a file", 2},
		{"gen blast cvnone", "find cvnone: there is no such interface in this network namespace: 'ip -br link' lists those there are", 1},
		{"bench sink", "takes 1 argument, not 0", 2},
		{"bench sink x --seconds -1", "must be above 0", 2},
		{"bench sink x --flows 0", "0 flows", 2},
		{"bench sink x --port 0", "1 to 65535", 2},
		{"bench sink x --port 9 --flows 5", "no --flows", 2},
		{"bench sink cvnone", "find cvnone", 1},
	} {
		status, out, errs := culvert(t, strings.Fields(tt.args)...)
		if status != tt.status || out != "" || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, want %d, printed %q, said %q", tt.args, status, tt.status, out, errs)
		}
	}
}
