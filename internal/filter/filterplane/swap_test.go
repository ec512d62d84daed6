// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// never matches no packet.
var never = []bpf.RawInstruction{{Op: 0x6, K: 0}}

// swapRules returns rules that count each packet with the first and with the last rule: "x first" and "x last", or with y
// instead. Rules in between keep the program busy.
func swapRules(x bool) []Rule {
	rule := func(name string, counts bool) Rule {
		r := Rule{Name: name, Action: Count}
		if !counts {
			r.Code = never
		}
		return r
	}
	rules := []Rule{rule("x first", x), rule("y first", !x)}
	for n := range 20 {
		rules = append(rules, Rule{Name: fmt.Sprint("between", n), Action: Drop, Code: udp})
	}
	return append(rules, rule("y last", !x), rule("x last", x))
}

// filterLoad sends frames until stop is called, which returns how many. It sends testbed.Window frames at a time, and waits until
// v0 has counted them.
func filterLoad(t *testing.T, inst *datapath.Instance, out *net.Interface, frame []byte) (stop func() (sent uint64)) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	// All instances share these counters.
	inst, err = datapath.OpenHere(inst.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	to := &unix.SockaddrLinklayer{Ifindex: out.Index}
	var ended atomic.Bool
	type result struct {
		sent uint64
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer unix.Close(fd)
		var sent uint64
		for end := time.Now().Add(testbed.Patience); !ended.Load() && time.Now().Before(end); {
			for range testbed.Window {
				if err := unix.Sendto(fd, frame, 0, to); err != nil {
					done <- result{sent, err}
					return
				}
				sent++
			}
			for countedAt(inst, "v0") < sent && time.Now().Before(end) {
				time.Sleep(100 * time.Microsecond)
			}
		}
		done <- result{sent, nil}
	}()
	return func() uint64 {
		ended.Store(true)
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.sent
	}
}

// countedAt returns the sum of an interface's counters over all reasons.
func countedAt(inst *datapath.Instance, iface string) (n uint64) {
	ports, err := inst.Ports()
	if err != nil {
		return 0
	}
	for _, p := range ports {
		if p.Interface != iface {
			continue
		}
		for _, r := range p.Reasons {
			n += r.Packets
		}
	}
	return n
}

// TestFilterSwapUnderLoad replaces rules again and again while packets come in. Each packet meets all old rules or all new ones,
// and each is counted.
func TestFilterSwapUnderLoad(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) { f.Rules = swapRules(true) })
	frame := protoFrame(1, 60)
	copy(frame, testbed.Device(t, "v0").HardwareAddr)
	stop := filterLoad(t, inst, testbed.Device(t, "v1"), frame)
	for n := range 30 {
		mustEdit(t, inst, func(f *Filter) { f.Rules = swapRules(n%2 == 1) })
		time.Sleep(20 * time.Millisecond) // for the kernel to free the old program
	}
	sent := stop()
	c, err := ReadCounters(inst)
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]uint64)
	for _, r := range c.Rules {
		n[r.Name] = r.Matched.Packets
	}
	if n["x first"] != n["x last"] || n["y first"] != n["y last"] {
		t.Errorf("packets have met parts of rules: %v", n)
	}
	if n["x first"] == 0 || n["y first"] == 0 {
		t.Errorf("not all rules have met packets: %v", n)
	}
	if got := n["x first"] + n["y first"]; got != sent || countedAt(inst, "v0") != sent {
		t.Errorf("%d packets sent, rules have met %d, %d counted", sent, got, countedAt(inst, "v0"))
	}
}

// TestFilterEditAndAttach attaches the data plane again and again while another process changes its rules.
func TestFilterEditAndAttach(t *testing.T) {
	inst := filterBed(t, false)
	mustEdit(t, inst, func(f *Filter) { f.Rules = swapRules(true) })
	frame := protoFrame(1, 60)
	copy(frame, testbed.Device(t, "v0").HardwareAddr)
	stop := filterLoad(t, inst, testbed.Device(t, "v1"), frame)
	for n := range 8 {
		edited := make(chan error, 1)
		all, err := datapath.ListHere()
		if err != nil || len(all) != 1 {
			t.Fatalf("%d instances, %v", len(all), err)
		}
		go func() {
			defer all[0].Close()
			edited <- Edit(all[0], func(f *Filter) error { f.Rules = swapRules(n%2 == 1); return nil })
		}()
		inst.Close()
		inst = attachFilterBed(t, false)
		if err := <-edited; err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	sent := stop()
	c, err := ReadCounters(inst)
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]uint64)
	for _, r := range c.Rules {
		n[r.Name] = r.Matched.Packets
	}
	if n["x first"] != n["x last"] || n["y first"] != n["y last"] || n["x first"]+n["y first"] != sent {
		t.Errorf("%d packets sent: %v", sent, n)
	}
	f, err := Read(inst)
	if err != nil || len(f.Rules) != len(swapRules(true)) {
		t.Errorf("%d rules, %v", len(f.Rules), err)
	}
}
