// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"syscall"
	"testing"

	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// TestBothStages has one process forward SCION and IP. Each packet is counted under its own stage's reason, and neither stage
// loses a packet over restarts.
func TestBothStages(t *testing.T) {
	r := newRouted(t, "rbth", lab.Options{})
	as, err := r.lab.AS("rut")
	check(t, err)
	file := routeFile(t, "interfaces = ['to-a', 'to-b']\n"+smallRoute+"[scion]\nconfig = '"+as.RouterConfig+"'\n")
	serve := func() *process {
		p := serveRoute(t, r.lab, file)
		wait(t, "links to be usable", func() bool { return ready(t, plane(t, r.lab, "rut")) })
		return p
	}
	p := serve()
	r.streams = append(r.streams, newStream(frames(t, r.lab, "rut", r.from, r.into, scionpkt.GenerateOptions{
		Sizes: []int{streamSize}, Ingress: 1, Egress: 2,
	})[0], 2*numbers))
	r.begin()
	both := func() {
		r.rises("fwd route")
		r.rises("fwd scion-br-transit")
	}
	both()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p.end(sig)
		r.rises("fwd route-fib")
		r.rises("fwd scion-br-transit")
		p = serve()
		both()
	}
	routeCheck(t, r.lab)
	moved := r.count().since(r.begun)
	// A packet is counted as sent a moment after it has left.
	wait(t, "as many SCION packets sent as were forwarded", func() bool {
		return r.streams[2].sent.Load() >= moved["fwd scion-br-transit"]
	})
	r.finish("fwd route", "fwd route-fib", "pass route-off", "pass route-egress", "fwd scion-br-transit")
	if moved, sent := r.count().since(r.begun)["fwd scion-br-transit"], r.streams[2].sent.Load(); moved != sent {
		t.Errorf("%d SCION packets were forwarded, %d were sent", moved, sent)
	}
}
