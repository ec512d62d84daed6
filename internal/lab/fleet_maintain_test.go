// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/cluster"
)

// maintain takes a balancer out of service and back. It is not said to be safe before the router's BIRD has moved and new flows are gone, which
// a route of the router's own goes on to send it for a while.
func (f *fleetWalk) maintain() {
	f.allAnnounce()
	route := f.routeVIP("lb2")
	stopFlows := f.startFlows()
	defer stopFlows()
	f.moreFlows("before")
	done := make(chan struct{})
	var said []byte
	var failed error
	go func() {
		said, failed = f.l.RunFleet(f.t.Context(), "maintain", "lb2", "-m", "a new disk")
		close(done)
	}()
	const own = 1 // the route of the router's own
	f.wantHops(fleetBalancers - 1 + own)
	eventually(f.t, "lb2 announces nothing", func() bool {
		n := f.node("lb2")
		return n.Maintain == cluster.MaintainWithdrawing && len(n.Announced) == 0
	})
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // it is safe after three seconds without a new flow
		f.moreFlows("after the withdrawal")
		select {
		case <-done:
			f.t.Fatalf("flows come, and the node is safe to stop: %v: %s", failed, said)
		case <-time.After(200 * time.Millisecond):
		}
	}
	route(netlink.RouteDel)
	<-done
	if failed != nil || !strings.Contains(string(said), "lb2 withdraws") || !strings.Contains(string(said), "lb2 is safe to stop") {
		f.t.Errorf("%v: %s", failed, said)
	}
	stopFlows()
	if n := f.node("lb2"); n.Maintain != cluster.MaintainSafe || len(n.Announced) > 0 {
		f.t.Errorf("in maintenance: %+v", n)
	}
	for range 5 {
		if out, err := f.l.Run(f.t.Context(), "client", "curl", "-sS", "-m", "20", lbURL(lbVIP4)); err != nil {
			f.t.Errorf("without lb2: %v: %s", err, out)
		}
	}
	f.resume("lb2")
	if text := f.fleet("history", "-v"); !strings.Contains(text, "maintain") || !strings.Contains(text, "resume") {
		f.t.Errorf("the audit:\n%s", text)
	}
}

// resume has a node announce again.
func (f *fleetWalk) resume(node string) {
	f.t.Helper()
	out, err := f.l.RunFleet(f.t.Context(), "resume", node)
	switch text := string(out); {
	case err == nil && !strings.Contains(text, node+" is back in service, and announces "):
		f.t.Errorf("resume says %s", text)
	case err == nil:
		if n := f.node(node); len(n.Announced) != 2 {
			f.t.Errorf("resume says %s, and the node announces %v", text, n.Announced)
		}
	case !strings.Contains(text, "has not answered within") && !strings.Contains(text, "it does not announce"): // a busy host
		f.t.Fatalf("%v: %s", err, out)
	}
	f.allAnnounce()
	eventually(f.t, node+" is in service", func() bool {
		n := f.node(node)
		return n.Maintain == "" && len(n.Announced) == 2
	})
	if out, err := f.l.RunFleet(f.t.Context(), "resume", node); err == nil {
		f.t.Errorf("a node in service is back in service: %s", out)
	}
}

// node returns the state of a node, none if it is not there.
func (f *fleetWalk) node(name string) fleetNodeState {
	f.t.Helper()
	all := f.status()
	if n := slices.IndexFunc(all, func(s fleetNodeState) bool { return s.Node == name }); n >= 0 {
		return all[n]
	}
	return fleetNodeState{}
}

// wantHops waits until the router has so many next hops to the VIP.
func (f *fleetWalk) wantHops(want int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("the router has %d next hops to the VIP", want), func() bool {
		n, err := f.l.NextHops("router", lbVIP4)
		return err == nil && n == want
	})
}

// routeVIP gives the router a route to the VIP over a balancer that goes before all of BIRD's, whatever the balancer announces. What it returns
// deletes the route.
func (f *fleetWalk) routeVIP(balancer string) (do func(func(*netlink.Route) error)) {
	f.t.Helper()
	const first = 1 // BIRD's routes have metric 32
	route := &netlink.Route{Dst: netlink.NewIPNet(lbVIP4.AsSlice()), Gw: net18(lbNet(balancer), 2, false).Addr().AsSlice(), Priority: first}
	do = func(change func(*netlink.Route) error) {
		f.t.Helper()
		if err := f.l.Do("router", func() error { return change(route) }); err != nil {
			f.t.Fatal(err)
		}
	}
	do(netlink.RouteAdd)
	return do
}

// startFlows has the client open connections to the VIP all the time until the function that it returns is called.
func (f *fleetWalk) startFlows() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var work sync.WaitGroup
	const loops = 4 // a connection that has to wait for its answer does not keep others from beginning
	for range loops {
		work.Go(func() {
			script := fmt.Sprintf("while :; do (exec 3<>/dev/tcp/%s/%d); sleep 0.1; done", lbVIP4, lbHTTPPort)
			if out, err := f.l.Run(ctx, "client", "bash", "-c", script); ctx.Err() == nil {
				f.t.Errorf("%v: %s", err, out)
			}
		})
	}
	return func() { cancel(); work.Wait() }
}

// moreFlows waits until lb2 has a new flow.
func (f *fleetWalk) moreFlows(when string) {
	f.t.Helper()
	flows := func() (n uint64) {
		var r struct {
			VIPs []struct {
				Flows uint64 `json:"flows"`
			} `json:"vips"`
		}
		out, err := f.l.Run(f.t.Context(), "lb2", f.l.Culvert, "lb", "show", "-j", "--on", "lb2")
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil {
			f.t.Fatalf("%v: %s", err, out)
		}
		for _, v := range r.VIPs {
			n += v.Flows
		}
		return n
	}
	before := flows()
	eventually(f.t, "lb2 has a new flow "+when, func() bool { return flows() > before })
}
