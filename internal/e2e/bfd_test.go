// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

const (
	bfdInterval   = 200 * time.Millisecond
	bfdMultiplier = 5 // the lab's
	// bfdFrame is longer than any packet of the control plane: QUIC stays below 1500.
	bfdFrame = 1800
)

// scrape returns the lines of the metrics at an address of a namespace that begin with prefix.
func scrape(l *lab.Lab, ns, addr, prefix string) (series []string, err error) {
	body, err := get(l, ns, addr, "/metrics")
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, prefix) {
			series = append(series, line)
		}
	}
	return series, err
}

// get returns what an HTTP server in a namespace answers.
func get(l *lab.Lab, ns, addr, path string) (body []byte, err error) {
	err = l.Do(ns, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
		}
		return err
	})
	return body, err
}

// interfaceUp returns the state of an interface in the control plane's metrics.
func interfaceUp(l *lab.Lab, as lab.AS, id string) (bool, error) {
	series, err := scrape(l, as.NS, as.RouterAPI.String(), `router_interface_up{interface="`+id+`"`)
	if err != nil {
		return false, err
	}
	if len(series) == 0 {
		return false, fmt.Errorf("no router_interface_up of %s in the metrics of %s", id, as.NS)
	}
	return strings.HasSuffix(series[0], " 1"), nil
}

// follow waits until the control plane has declared interface id up or down, and then until the fast path has that state,
// which must not take longer than two detection times. Time is measured by the BFD packets that the router sends on interface
// other, whose session is up: a busy machine that holds up the router holds up these too. If it holds up the test, that does
// no harm, since the packets are counted before the state is read.
func follow(t *testing.T, l *lab.Lab, as lab.AS, p *datapath.Instance, id, other string, up bool) {
	t.Helper()
	link := linkIndex(t, p, id)
	fastPath := func() bool {
		states, err := scionplane.Of(p).LinkStates()
		check(t, err)
		return states[link].Up
	}
	begun := time.Now()
	wait(t, "BFD to declare the link", func() bool {
		now, err := interfaceUp(l, as, id)
		check(t, err)
		return now == up
	})
	took := time.Since(begun)
	sent := func() float64 { return metric(t, l, as, `router_bfd_sent_packets_total{interface="`+other+`"`) }
	declared, late := sent(), 0.0
	if declared == 0 {
		t.Fatalf("the router has sent no BFD packets on link %s", other)
	}
	wait(t, "the fast path to take over the state", func() bool {
		now := sent()
		if fastPath() == up {
			return true
		}
		late = now - declared
		return false
	})
	t.Logf("link %s up %v: declared after %v, not in the fast path %v BFD packets later", id, up, took, late)
	if late > 2*bfdMultiplier {
		t.Errorf("the fast path did not have the state of link %s after %v BFD packets, want at most %d", id, late, 2*bfdMultiplier)
	}
}

// through2 is a lab with a numbered stream from AS 1 through AS 2 to AS 3.
type through2 struct {
	lab  *lab.Lab
	as2  lab.AS
	from load.End
	sink *load.Sink
	s    *stream
}

func newThrough2(t *testing.T, name string, interval time.Duration) *through2 {
	t.Helper()
	b := &through2{lab: up(t, "scion3", lab.Options{Name: name, MTU: 2000, BFD: interval})}
	var err error
	b.as2, err = b.lab.AS("as2")
	check(t, err)
	b.from = end(t, b.lab, "as1", "to-as2")
	b.sink = newSink(t, end(t, b.lab, "as3", "to-as2"),
		load.SinkOptions{MinLen: bfdFrame, Tags: numbers, TagOffset: bfdFrame - 8})
	b.s = newStream(frames(t, b.lab, "as2", b.from, end(t, b.lab, "as2", "to-as1"), scionpkt.GenerateOptions{
		Sizes: []int{bfdFrame}, Ingress: 201, Egress: 203,
	})[0], 0)
	return b
}

// TestRestartWithBFD kills a router whose links are watched, and starts it again. The new sessions begin in state Down. The
// fast path must not take that for a loss of links that carry traffic.
func TestRestartWithBFD(t *testing.T) {
	// With a shorter interval a busy machine misses packets. Then the link is down and rightly loses traffic.
	const interval = time.Second
	const settleTime = (bfdMultiplier + 1) * interval // longer than the detection time
	b := newThrough2(t, "rbfd", interval)
	load := startLoad(t, b.from, b.s)
	load.wait(100)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		check(t, b.lab.StopRouter("as2", sig))
		time.Sleep(settleTime)
		check(t, b.lab.StartRouter("as2", lab.Culvert))
		for _, id := range []string{"201", "203"} {
			wait(t, "the session of "+id, func() bool {
				up, err := interfaceUp(b.lab, b.as2, id)
				return err == nil && up
			})
		}
		time.Sleep(settleTime)
	}
	load.stop()
	settled(t, b.sink)
	b.s.wantAll(t, b.sink)
}

// TestBFDLossUnderLoad stops the router at the far end of a link that carries traffic. The fast path stops sending there, and
// uses the link again when the router goes on.
func TestBFDLossUnderLoad(t *testing.T) {
	b := newThrough2(t, "bfd", bfdInterval)
	l, as2, s, sink := b.lab, b.as2, b.s, b.sink
	p := plane(t, l, "as2")
	begun := count(t, p, "to-as1")
	load := startLoad(t, b.from, s)
	const step = 200
	load.wait(step)

	far, err := l.RouterPID("as3")
	check(t, err)
	check(t, syscall.Kill(far, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(far, syscall.SIGCONT) })
	follow(t, l, as2, p, "203", "201", false)
	load.pause(s)
	settled(t, sink)
	down, before := s.sent.Load(), count(t, p, "to-as1")
	s.on.Store(true)
	load.wait(step)
	load.pause(s)
	resumed := s.sent.Load()
	moved := count(t, p, "to-as1").since(before).only("scion-link-down", "scion-br-transit")
	if got := moved["punt scion-link-down"] + moved["limited scion-link-down"]; got != resumed-down || moved["fwd scion-br-transit"] != 0 {
		t.Errorf("counters moved by %v while the link was down, want %d times scion-link-down", moved, resumed-down)
	}

	check(t, syscall.Kill(far, syscall.SIGCONT))
	follow(t, l, as2, p, "203", "201", true)
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
	// The fast path has left the link once. No packet behind the first lost one has arrived.
	last := uint64(0)
	for last < down && arrivals[last] == 1 {
		last++
	}
	for i, n := range arrivals[last:down] {
		if n != 0 {
			t.Errorf("number %d has arrived, number %d before it has not", int(last)+i, last)
			break
		}
	}
	moved = count(t, p, "to-as1").since(begun)
	forwarded := moved["fwd scion-br-transit"]
	refused := moved["punt scion-link-down"] + moved["limited scion-link-down"]
	if want := s.sent.Load(); forwarded+refused < want {
		t.Errorf("%d forwarded and %d refused of %d packets: %v", forwarded, refused, want, moved)
	}
	if seen := settled(t, sink); forwarded < seen.Packets || moved.lost() != 0 {
		t.Errorf("the sink received %d of %d forwarded packets: %v", seen.Packets, forwarded, moved)
	}
	t.Logf("%d packets: %d before the link was left, %d refused", s.sent.Load(), last, refused)
}
