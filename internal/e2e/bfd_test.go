// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/bench"
	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scionpkt"
)

const (
	bfdInterval  = 100 * time.Millisecond
	bfdDetection = 5 * bfdInterval // the lab's multiplier
	// bfdFrame is longer than any packet of the control plane: QUIC stays below 1500.
	bfdFrame = 1800
)

// interfaceUp is the control plane's own word on an interface, from its metrics.
func interfaceUp(t *testing.T, l *lab.Lab, as lab.AS, id string) (up bool) {
	t.Helper()
	check(t, l.Do(as.NS, func() error {
		conn, err := net.Dial("tcp", as.RouterAPI.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if s := lines.Text(); strings.HasPrefix(s, `router_interface_up{interface="`+id+`"`) {
				up = strings.HasSuffix(s, " 1")
				return nil
			}
		}
		return fmt.Errorf("no router_interface_up of %s in the metrics of %s: %v", id, as.NS, lines.Err())
	}))
	return up
}

// follow waits until the control plane has declared an interface up or down, and then until the
// fast path has taken it over, which must not take longer than the detection itself.
func follow(t *testing.T, l *lab.Lab, as lab.AS, p *datapath.Instance, id string, up bool) {
	t.Helper()
	link := linkIndex(t, p, id)
	fastPath := func() bool {
		states, err := p.LinkStates()
		check(t, err)
		return states[link].Up
	}
	begun := time.Now()
	wait(t, "BFD to declare the link", func() bool { return interfaceUp(t, l, as, id) == up })
	declared := time.Now()
	wait(t, "the fast path to take over the state", func() bool { return fastPath() == up })
	late := time.Since(declared)
	t.Logf("link %s up %v: declared after %v, in the fast path %v later", id, up, declared.Sub(begun), late)
	if late > bfdDetection {
		t.Errorf("the fast path took over the state of link %s after %v, want at most %v", id, late, bfdDetection)
	}
}

// TestBFDLossUnderLoad stops the router at the far end of a link that a flood uses. The fast path
// stops sending there and comes back with the router.
func TestBFDLossUnderLoad(t *testing.T) {
	l := up(t, "scion3", lab.Options{Name: "bfd", MTU: 2000, BFD: bfdInterval})
	as2, err := l.AS("as2")
	check(t, err)
	p := plane(t, l, "as2")
	from, into := end(t, l, "as1", "to-as2"), end(t, l, "as2", "to-as1")
	sink := newSink(t, end(t, l, "as3", "to-as2"),
		bench.SinkOptions{MinLen: bfdFrame, Tags: maxSent, TagOffset: bfdFrame - 8})
	s := newStream(frames(t, l, "as2", from, into, scionpkt.GenerateOptions{
		Sizes: []int{bfdFrame}, Ingress: 201, Egress: 203,
	})[0], 0)
	begun := count(t, p, "to-as1")
	load := startLoad(t, from, s)
	const step = 200
	load.wait(step)

	far, err := l.RouterPID("as3")
	check(t, err)
	check(t, syscall.Kill(far, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(far, syscall.SIGCONT) })
	follow(t, l, as2, p, "203", false)
	load.pause(s)
	settled(t, sink)
	down, before := s.sent.Load(), count(t, p, "to-as1")
	s.on.Store(true)
	load.wait(step)
	load.pause(s)
	resumed := s.sent.Load()
	moved := count(t, p, "to-as1").since(before).only("scion-link-down", "scion-br-transit")
	if got := moved["punt scion-link-down"] + moved["limited scion-link-down"]; got != uint64(resumed-down) || moved["fwd scion-br-transit"] != 0 {
		t.Errorf("counters moved by %v while the link was down, want %d times scion-link-down", moved, resumed-down)
	}

	check(t, syscall.Kill(far, syscall.SIGCONT))
	follow(t, l, as2, p, "203", true)
	s.on.Store(true)
	load.wait(step)
	load.stop()

	settled(t, sink)
	arrivals := s.arrivals(t, sink)
	for i, n := range arrivals[down:resumed] {
		if n != 0 {
			t.Errorf("number %d was sent to the router that is down", int(down)+i)
			break
		}
	}
	wantOnce(t, "after the router is back", arrivals[resumed:])
	// The fast path left the link at one moment and did not come back before its time.
	last := 0
	for last < int(down) && arrivals[last] == 1 {
		last++
	}
	for i, n := range arrivals[last:down] {
		if n != 0 {
			t.Errorf("number %d has arrived, number %d before it has not", last+i, last)
			break
		}
	}
	moved = count(t, p, "to-as1").since(begun)
	forwarded := moved["fwd scion-br-transit"]
	refused := moved["punt scion-link-down"] + moved["limited scion-link-down"]
	if want := uint64(s.sent.Load()); forwarded+refused < want {
		t.Errorf("%d forwarded and %d refused of %d packets: %v", forwarded, refused, want, moved)
	}
	if seen := settled(t, sink); forwarded < seen.Packets || moved.lost() != 0 {
		t.Errorf("the sink received %d of %d forwarded packets: %v", seen.Packets, forwarded, moved)
	}
	t.Logf("%d packets: %d before the link was left, %d refused", s.sent.Load(), last, refused)
}
