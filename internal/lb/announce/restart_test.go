// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// restarting returns options of machine 1 with a graceful restart.
func restarting(neighbor string, within time.Duration) Options {
	o := options(1, neighbor, asRouter)
	o.GracefulRestart = within
	return o
}

// watch starts to watch routes of BIRD in the host's kernel. lost ends that, and returns the prefixes whose routes were deleted or
// replaced meanwhile.
func (h host) watch(t *testing.T) (lost func() []string) {
	t.Helper()
	changes, quit := make(chan netlink.RouteUpdate, 1<<10), make(chan struct{})
	check(t, netlink.RouteSubscribeWithOptions(changes, quit, netlink.RouteSubscribeOptions{Namespace: &h.ns}))
	const mark = "198.51.100.99"
	_, marked, err := net.ParseCIDR(mark + "/32")
	check(t, err)
	var all []string
	return func() []string {
		t.Helper()
		// Notifications are in order, so this route's is the last one to wait for.
		h.route(t, marked.String(), "10.9.1.1")
		defer func() { check(t, h.links.RouteDel(&netlink.Route{Dst: marked})) }()
		for {
			select {
			case c := <-changes:
				ones, _ := c.Dst.Mask.Size()
				prefix := fmt.Sprintf("%s/%d", c.Dst.IP, ones)
				switch {
				case c.Dst.IP.String() == mark:
					close(quit)
					return all
				case c.Type == unix.RTM_DELROUTE && c.Protocol == unix.RTPROT_BIRD && !slices.Contains(all, prefix):
					all = append(all, prefix)
				}
			case <-time.After(patience):
				t.Fatal("no notifications of routes")
			}
		}
	}
}

// TestRestart ends a speaker and starts another one. With a graceful restart, the router keeps the prefixes that both announce.
func TestRestart(t *testing.T) {
	closed := func(s *speaker) { s.tell("close"); s.kill() }
	for _, tt := range []struct {
		name, neighbor, session string
		within                  time.Duration
		end                     func(*speaker)
	}{
		{"closed", "10.9.1.254", over4(1, asMachine, "hold time 600;"), time.Minute, closed},
		{"canceled", "10.9.1.254", over4(1, asMachine, "hold time 600;"), time.Minute, func(s *speaker) { s.tell("cancel"); s.kill() }},
		{"killed", "10.9.1.254", over4(1, asMachine, "hold time 600;"), time.Minute, (*speaker).kill},
		{"over IPv6", "fd09:1::fe", over6(1, asMachine, "hold time 600;"), time.Minute, closed},
		{"router restarts gracefully too", "10.9.1.254", over4(1, asMachine, "graceful restart on;"), time.Minute, closed},
		{"not graceful", "10.9.1.254", over4(1, asMachine, "hold time 600;"), 0, closed},
		{"router does not take part", "10.9.1.254", over4(1, asMachine, "graceful restart off;"), time.Minute, closed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", tt.session)
			s := b.speak(b.machines[0], restarting(tt.neighbor, tt.within))
			s.set(vip4, vip6, other4)
			hops := map[string]string{vip4: "10.9.1.1", vip6: "fd09:1::1"}
			for prefix, hop := range hops {
				router.wantRoutes(prefix, hop)
			}
			router.wantRoutes(other4, "10.9.1.1")
			lost := b.router.watch(t)
			tt.end(s)
			s = b.speak(b.machines[0], restarting(tt.neighbor, tt.within))
			if tt.name == "killed" && tt.within > 0 {
				time.Sleep(3 * time.Second) // time enough to connect
				s.await("idle 0")
			}
			s.set(vip4, vip6)
			s.await("established 2")
			router.wantRoutes(other4, "")
			for prefix, hop := range hops {
				router.wantRoutes(prefix, hop)
			}
			want := []string{other4}
			if tt.within == 0 || strings.Contains(tt.session, "restart off") {
				want = []string{vip4, other4, vip6}
			}
			got := lost()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the router has lost %v, want %v", got, want)
			}
		})
	}
}

// TestWithdrawnAtTheEnd withdraws a prefix and ends the speaker in the same moment: the router does not keep it.
func TestWithdrawnAtTheEnd(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"))
	for range 4 {
		s := b.speak(b.machines[0], restarting("10.9.1.254", time.Minute))
		s.set(vip4, vip6, other4)
		router.wantRoutes(vip4, "10.9.1.1")
		router.wantRoutes(vip6, "fd09:1::1")
		router.wantRoutes(other4, "10.9.1.1")
		lost := b.router.watch(t)
		fmt.Fprint(s.in, "set "+other4+"\nclose\n")
		check(t, s.in.Flush())
		<-s.answers
		<-s.answers
		router.wantRoutes(vip4, "")
		router.wantRoutes(vip6, "")
		if got := lost(); slices.Contains(got, other4) {
			t.Errorf("the router has lost %v", got)
		}
		s.kill()
	}
}

// TestWithdrawnEarly withdraws and closes as soon as a session is established. The router has kept the prefixes of an earlier
// process.
func TestWithdrawnEarly(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"))
	s := b.speak(b.machines[0], restarting("10.9.1.254", time.Minute))
	s.set(vip4, vip6)
	for range 4 {
		router.wantRoutes(vip4, "10.9.1.1")
		router.wantRoutes(vip6, "fd09:1::1")
		s.kill()
		s = b.speak(b.machines[0], restarting("10.9.1.254", time.Minute))
		s.set(vip4, vip6)
		s.await("established 2")
		fmt.Fprint(s.in, "set\nclose\n")
		check(t, s.in.Flush())
		<-s.answers
		<-s.answers
		router.wantRoutes(vip4, "")
		router.wantRoutes(vip6, "")
		s.kill()
		s = b.speak(b.machines[0], restarting("10.9.1.254", time.Minute))
		s.set(vip4, vip6)
	}
}

// TestWithdrawnWhileRouterSends withdraws and closes while the router has not read yet, and has routes of its own to send. If the
// connection were closed at once, it would answer those with a reset, and the router, which fails to write, would not read the
// withdrawals.
func TestWithdrawnWhileRouterSends(t *testing.T) {
	b := newBed(t)
	var own strings.Builder
	own.WriteString("protocol static own { ipv4;\n")
	for n := range 20_000 {
		fmt.Fprintf(&own, "route 10.%d.%d.%d/32 blackhole;\n", 100+n>>16, n>>8&255, n&255)
	}
	own.WriteString("}\n")
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"), own.String())
	for range 4 {
		s := b.speak(b.machines[0], restarting("10.9.1.254", 10*time.Minute))
		s.set(vip4, vip6)
		router.wantRoutes(vip4, "10.9.1.1")
		router.wantRoutes(vip6, "fd09:1::1")
		check(t, router.cmd.Process.Signal(syscall.SIGSTOP))
		fmt.Fprint(s.in, "set\n")
		check(t, s.in.Flush())
		<-s.answers
		fmt.Fprint(s.in, "close\n")
		check(t, s.in.Flush())
		time.Sleep(100 * time.Millisecond)
		check(t, router.cmd.Process.Signal(syscall.SIGCONT))
		<-s.answers
		router.wantRoutes(vip4, "")
		router.wantRoutes(vip6, "")
		s.kill()
	}
}

// TestWithdrawnOverSlowLink withdraws prefixes while the send queue of the connection is long and the router sends updates. If the
// connection were closed at once, it would answer those with a reset, and the queued withdrawals would be lost.
func TestWithdrawnOverSlowLink(t *testing.T) {
	b := newBed(t)
	const churn = "protocol static churn { ipv4; route 198.51.100.0/24 blackhole; }\n"
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"), churn)
	s := b.speak(b.machines[0], restarting("10.9.1.254", 10*time.Minute))
	s.set(vip4, vip6)
	router.wantRoutes(vip4, "10.9.1.1")
	router.wantRoutes(vip6, "fd09:1::1")
	b.machines[0].slow(t, 600)
	for range 12 {
		s.set(vip4, vip6, other4)
		time.Sleep(10 * time.Millisecond) // otherwise gobgp merges both into one message
		s.set(vip4, vip6)
		time.Sleep(10 * time.Millisecond)
	}
	closed := make(chan struct{})
	go func() {
		for range 10 {
			router.ask("disable", "churn")
			router.ask("enable", "churn")
			time.Sleep(200 * time.Millisecond)
		}
		close(closed)
	}()
	fmt.Fprint(s.in, "set\nclose\n")
	check(t, s.in.Flush())
	<-s.answers
	<-s.answers
	<-closed
	router.wantRoutes(vip4, "")
	router.wantRoutes(vip6, "")
	// Withdrawals that gobgp has merged with an announcement are not waited for.
	if log := s.stderr.String(); strings.Contains(log, "WARN") {
		t.Error("the session ended before all withdrawals had arrived")
	}
}

// slow limits the rate at which the host sends, in bytes a second, and uses up the burst.
func (h host) slow(t *testing.T, rate int) {
	t.Helper()
	const burst = 2000
	check(t, netns.Set(h.ns))
	tbf := fmt.Sprintf("qdisc replace dev cvr root tbf rate %dbps burst %d limit 1mb", rate, burst)
	if out, err := exec.Command("tc", strings.Fields(tbf)...).CombinedOutput(); err != nil {
		t.Fatalf("tc %s: %v: %s", tbf, err, out)
	}
	c, err := net.ListenUDP("udp4", nil)
	check(t, err)
	defer c.Close()
	for range 2 {
		_, err = c.WriteTo(make([]byte, burst/2), &net.UDPAddr{IP: net.IPv4(10, 9, 1, 254), Port: 9})
		check(t, err)
	}
}

// TestLostWithWithdrawals loses a session that has not sent its withdrawals. The next one does not wait for them at its end.
func TestLostWithWithdrawals(t *testing.T) {
	o := options(1, "127.0.0.99", asRouter)
	check(t, o.check())
	x := newSession(&o, o.Neighbors[0])
	check(t, x.start(t.Context()))
	defer x.end()
	state := func(s bgp.FSMState) {
		x.changed(&apiutil.WatchEventMessage_PeerEvent{
			Type: apiutil.PEER_EVENT_STATE, Peer: apiutil.Peer{State: apiutil.PeerState{SessionState: s}},
		}, time.Now())
	}
	state(bgp.BGP_FSM_ESTABLISHED)
	x.unsent.add(netip.MustParsePrefix(vip4))
	state(bgp.BGP_FSM_IDLE)
	if got := x.unsent.all(); len(got) != 0 {
		t.Errorf("withdrawals of %v are waited for", got)
	}
}

// TestRestartTime ends a speaker and starts no other one. The router keeps the prefixes for the restart time.
func TestRestartTime(t *testing.T) {
	const restartTime = 2 * time.Second
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"))
	s := b.speak(b.machines[0], restarting("10.9.1.254", restartTime))
	s.set(vip4, vip6)
	router.wantRoutes(vip4, "10.9.1.1")
	router.wantRoutes(vip6, "fd09:1::1")
	begin := time.Now()
	s.tell("close")
	router.wantRoutes(vip4, "")
	if took := time.Since(begin); took < restartTime {
		t.Errorf("the router has dropped the route after %v", took)
	}
	router.wantRoutes(vip6, "")
}

// TestConnectionBreaks breaks the connection at the machine's end, twice. The router keeps the prefixes.
func TestConnectionBreaks(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"))
	s := b.speak(b.machines[0], restarting("10.9.1.254", time.Minute))
	s.set(vip4, vip6)
	for range 2 {
		s.await("established 2")
		router.wantRoutes(vip4, "10.9.1.1")
		router.wantRoutes(vip6, "fd09:1::1")
		lost := b.router.watch(t)
		before := s.tell("state").Neighbors[0].Since
		b.machines[0].breakConnections(t)
		eventually(t, "the next session", "true 2", func() string {
			n := s.tell("state").Neighbors[0]
			return fmt.Sprint(n.State == established && n.Since.After(before), n.Announced)
		})
		s.set(vip4, vip6, other4) // announced after the other ones
		router.wantRoutes(other4, "10.9.1.1")
		s.set(vip4, vip6)
		router.wantRoutes(other4, "")
		if got := lost(); !slices.Equal(got, []string{other4}) {
			t.Errorf("the router has lost %v", got)
		}
	}
}

// breakConnections ends the host's connections to BGP speakers with an error.
func (h host) breakConnections(t *testing.T) {
	t.Helper()
	check(t, netns.Set(h.ns))
	out, err := exec.Command("ss", "-K", "dport", "=", "179").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
