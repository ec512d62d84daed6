// SPDX-License-Identifier: Apache-2.0

package dnssource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"culvert/internal/lb"
	"culvert/internal/lb/source/sourcetest"
)

// names serves records as no proper server does, on loopback by UDP and TCP. It returns the address.
func names(t *testing.T, answer func(name string, kind uint16, m *dns.Msg) bool) string {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if !answer(q.Question[0].Name, q.Question[0].Qtype, m) {
			return
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(payload)
		}
		_ = w.WriteMsg(m)
	})
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil { // somebody has the port
			l.Close()
			continue
		}
		for _, s := range []*dns.Server{{Listener: l, Handler: handler}, {PacketConn: p, Handler: handler}} {
			done := make(chan error, 1)
			started := make(chan struct{})
			s.NotifyStartedFunc = func() { close(started) }
			go func() { done <- s.ActivateAndServe() }()
			<-started
			t.Cleanup(func() { _ = s.ShutdownContext(context.Background()); <-done })
		}
		return l.Addr().String()
	}
	t.Fatal("no port is free for both TCP and UDP")
	return ""
}

// record adds a record to an answer.
func record(m *dns.Msg, text string) {
	r, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	m.Answer = append(m.Answer, r)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	at := names(t, func(name string, kind uint16, m *dns.Msg) bool {
		switch name {
		case "servfail.test.":
			m.Rcode = dns.RcodeServerFailure
		case "circle.test.": // all in one answer
			record(m, "circle.test. 1 IN CNAME b.test.")
			record(m, "b.test. 1 IN CNAME circle.test.")
		case "self.test.":
			record(m, "self.test. 1 IN CNAME self.test.")
		case "c1.test.": // one for each answer
			record(m, "c1.test. 1 IN CNAME c2.test.")
		case "c2.test.":
			record(m, "c2.test. 1 IN CNAME c1.test.")
		case "gone.test.":
			record(m, "gone.test. 1 IN CNAME nothing.test.")
			m.Rcode = dns.RcodeNameError
		case "halfway.test.":
			record(m, "halfway.test. 1 IN CNAME end.test.")
		case "end.test.":
			record(m, "end.test. 1 IN A 10.0.0.1")
		case "other.test.":
			m.Question[0].Name = "another.test."
			record(m, "another.test. 1 IN A 10.0.0.1")
		case "stray.test.":
			record(m, "stray.test. 1 IN A 10.0.0.1")
			record(m, "elsewhere.test. 1 IN A 10.0.0.66")
		case "large.test.":
			for n := range 2000 {
				record(m, fmt.Sprintf("large.test. 1 IN A 10.1.%d.%d", n/250, n%250+1))
			}
		case "many.test.":
			for n := range mostTargets + 1 {
				record(m, fmt.Sprintf("many.test. 1 IN SRV 1 1 80 t%d.test.", n))
			}
		case "none.test.":
			record(m, "none.test. 1 IN SRV 0 0 0 .")
		default:
			var n int
			if _, err := fmt.Sscanf(name, "long%d.test.", &n); err == nil {
				record(m, fmt.Sprintf("%s 1 IN CNAME long%d.test.", name, n+1))
			}
		}
		return true
	})
	for _, c := range []struct{ host, want string }{
		{"servfail.test", "A servfail.test.: resolver " + at + " answers with SERVFAIL"},
		{"circle.test", "its aliases (CNAME) go in a circle at circle.test."},
		{"self.test", "its aliases (CNAME) go in a circle at self.test."},
		{"c1.test", "its aliases (CNAME) go in a circle at c1.test."},
		{"long0.test", "more than 16 aliases"},
		{"gone.test", "nothing.test., to which it is an alias, does not exist"},
		{"halfway.test", "10.0.0.1*1"},
		{"other.test", "answers another question"},
		{"stray.test", "10.0.0.1*1"},
		{"srv:many.test", "more than 1024 targets"},
		{"srv:none.test", ""},
	} {
		s := Source{IPv4: true, Resolvers: []string{at}, MinTTL: time.Second, MaxTTL: time.Minute}
		s.Host, s.SRV = strings.CutPrefix(c.host, "srv:")
		if got := look(t, s); !strings.Contains(got, c.want) || (c.want == "") != (got == "") || strings.Contains(got, "10.0.0.66") {
			t.Errorf("%s: %q, want %q", c.host, got, c.want)
		}
	}
	s := Source{Host: "large.test", IPv4: true, Resolvers: []string{at}, MinTTL: time.Second, MaxTTL: time.Minute}
	if got := len(strings.Fields(look(t, s))); got != 2000 {
		t.Errorf("%d of 2000 addresses, which fit into no datagram", got)
	}
	// Another resolver answers where one does not; a name that does not exist need not be asked for again.
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := dead.LocalAddr().String()
	dead.Close()
	s = Source{Host: "end.test", IPv4: true, Resolvers: []string{closed, at}, MinTTL: time.Second, MaxTTL: time.Minute}
	if got := look(t, s); got != "10.0.0.1*1" {
		t.Errorf("with a resolver that is not there: %s", got)
	}
}

// TestTTL counts how often a name is asked for: again when the shortest TTL ends, within the bounds, and after failures less and less.
func TestTTL(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var ttl atomic.Int64
	at := names(t, func(name string, kind uint16, m *dns.Msg) bool {
		asked.Add(1)
		if ttl.Load() < 0 {
			m.Rcode = dns.RcodeServerFailure
			return true
		}
		record(m, fmt.Sprintf("web.test. %d IN A 10.0.0.1", ttl.Load()))
		record(m, "web.test. 3000 IN A 10.0.0.2")
		return true
	})
	watch := func(first int64, s Source) (n int64, took time.Duration) {
		ttl.Store(first)
		asked.Store(0)
		s.Host, s.IPv4, s.Resolvers = "web.test", true, []string{at}
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		answers := 0
		s.Watch(ctx, func(_ []lb.Offer, err error) {
			if answers++; answers == 3 {
				took = time.Since(start)
				cancel(errors.New("enough"))
			}
		})
		return asked.Load(), took
	}
	for _, c := range []struct {
		what  string
		ttl   int64
		s     Source
		least time.Duration
	}{
		{"its TTL", 1, Source{MinTTL: time.Millisecond, MaxTTL: time.Hour}, 2 * time.Second},
		{"the lower bound", 0, Source{MinTTL: 300 * time.Millisecond, MaxTTL: time.Hour}, 600 * time.Millisecond},
		{"the upper bound", 3000, Source{MinTTL: time.Millisecond, MaxTTL: 400 * time.Millisecond}, 800 * time.Millisecond},
		{"failures, whose pauses double", -1, Source{MinTTL: 200 * time.Millisecond, MaxTTL: time.Hour}, 600 * time.Millisecond},
	} {
		if n, took := watch(c.ttl, c.s); took < c.least || n < 3 {
			t.Errorf("by %s: %d questions, three answers within %v, want at least %v", c.what, n, took, c.least)
		}
	}
}

// TestWaitForNothing has a name without addresses looked up again soon, also if the answer has no SOA record to say for how long it holds.
func TestWaitForNothing(t *testing.T) {
	a := asking{Source: Source{MinTTL: time.Second, MaxTTL: time.Hour}, ttl: time.Hour}
	if got := a.wait(); got != longestPause {
		t.Errorf("%v without an address, want %v", got, longestPause)
	}
	if err := a.add(lb.Offer{Addr: netip.MustParseAddr("10.0.0.1")}); err != nil || a.wait() != time.Hour {
		t.Errorf("%v with one, %v", a.wait(), err)
	}
}

// TestSilence has the resolver fall silent and answer again.
func TestSilence(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	at := names(t, func(name string, kind uint16, m *dns.Msg) bool {
		record(m, "web.test. 0 IN A 10.0.0.1")
		return !silent.Load()
	})
	w := sourcetest.Watch(t, Source{Host: "web.test", IPv4: true, Resolvers: []string{at}, MinTTL: 50 * time.Millisecond, MaxTTL: time.Minute})
	w.Backends("10.0.0.1")
	silent.Store(true)
	w.Fails("resolver " + at + " does not answer within 2s")
	silent.Store(false)
	w.Backends("10.0.0.1")
}
