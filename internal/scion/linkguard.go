// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/log"
	"golang.org/x/sys/unix"

	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// linkGuard is the filter on the slow path's sockets.
type linkGuard struct {
	router *Router
	// filter is nil if the process may not load it. The sockets then have guardSockets' filter, which does not check the
	// interface.
	filter *scionplane.SocketGuard
	// bound has the device that the socket of each link is bound to, 0 for none.
	bound []int
	// waiting are the file descriptors of sockets that have a former guard's filter until takeOver.
	waiting []int
	// before has what former guards have counted for the links of the same names.
	before []scionplane.SocketDrops
}

// guardLinks puts the filter on the sockets of all links. It drops every datagram until a gate sets the interfaces. Sockets of a
// former data plane keep that one's filter until takeOver.
func guardLinks(r *Router, sockets map[linkKey]*coreLink) (*linkGuard, error) {
	n := len(r.Datapath.Links)
	g := &linkGuard{router: r, bound: make([]int, n), before: make([]scionplane.SocketDrops, n)}
	filter, err := scionplane.NewSocketGuard(r.Datapath)
	if errors.Is(err, os.ErrPermission) {
		return g, guardSockets(r.Control.IA, r.Datapath.BFDMinTTL, r.Sockets())
	}
	if err != nil {
		return nil, err
	}
	g.filter = filter
	if err := g.addSockets(sockets); err != nil {
		filter.Close()
		return nil, err
	}
	return g, nil
}

// takeOver puts the filter on the sockets that were former's, and goes on with its counts.
func (g *linkGuard) takeOver(former *linkGuard) {
	for _, fd := range g.waiting {
		if err := g.filter.Attach(fd); err != nil {
			log.Error("A socket of the slow path keeps its former filter", "err", err)
		}
	}
	g.waiting = nil
	if former.filter == nil {
		return
	}
	drops, err := former.drops()
	if err != nil {
		log.Error("What sockets have dropped so far is missing from the metrics", "err", err)
		return
	}
	for i, l := range g.router.Datapath.Links {
		if f := slices.IndexFunc(former.router.Datapath.Links, func(f scionplane.Link) bool { return f.Name == l.Name }); f >= 0 {
			g.before[i] = drops[f]
		}
	}
}

// close closes the filter. It stays on sockets that stay open.
func (g *linkGuard) close() {
	if g.filter != nil {
		g.filter.Close()
	}
}

// drops returns what was dropped for each link, by former guards too.
func (g *linkGuard) drops() ([]scionplane.SocketDrops, error) {
	drops, err := g.filter.Drops()
	if err != nil {
		return nil, err
	}
	for i, b := range g.before {
		drops[i].Interface += b.Interface
		drops[i].Service += b.Service
		drops[i].BFD += b.BFD
	}
	return drops, nil
}

// addSockets puts the filter on the socket of each link and notes the devices that they are bound to.
func (g *linkGuard) addSockets(sockets map[linkKey]*coreLink) error {
	links := g.router.Datapath.Links
	guarded := make([]bool, len(links))
	err := eachUDPSocket(func(fd int, at netip.AddrPort) error {
		far, _ := peerAddress(fd)
		link := slices.IndexFunc(links, func(l scionplane.Link) bool {
			return plain(l.Local) == plain(at) && plain(l.Remote) == plain(far)
		})
		if link < 0 {
			return nil
		}
		guarded[link] = true
		if index, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX); err == nil {
			g.bound[link] = index
		}
		if s := sockets[linkKey{links[link].Local, links[link].Remote}]; s != nil && s.shared {
			g.waiting = append(g.waiting, fd)
			return g.filter.Expect(fd, link)
		}
		return g.filter.Add(fd, link)
	})
	if err != nil {
		return err
	}
	if link := slices.Index(guarded, false); link >= 0 {
		return fmt.Errorf("the slow path has opened no socket for link %s", links[link].Name)
	}
	return nil
}

// plain returns an address without the IPv4-mapped form and without a zone, as the kernel keeps it.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// follow makes the filter a sink of the gate, and starts the gate.
func (g *linkGuard) follow(ctx context.Context, gate *gate, t deviceTracker) error {
	if g.filter == nil {
		gate.info("The slow path accepts datagrams by any interface: without CAP_BPF and CAP_NET_ADMIN it cannot check the interface")
	} else if err := gate.addSink(g.filter); err != nil {
		return err
	}
	return gate.start(ctx, t, g.bound)
}

const (
	// gatePeriod is how often the gate looks up the internal address and the counters of drops are read.
	gatePeriod = time.Second
	// dropsQuiet is the least time between two lines of the log about drops for one reason at one link or interface.
	dropsQuiet = time.Minute
)

// watch updates the gate and logs drops until ctx ends.
func (g *linkGuard) watch(ctx context.Context, gate *gate) {
	var watch socketWatch
	if g.filter != nil {
		if drops, err := g.drops(); err == nil {
			watch.look(g.router.Datapath.Links, drops, time.Now(), func(string, ...any) {}) // the log has had these
			clear(watch.quiet)
		}
	}
	failed := false
	every(ctx, gatePeriod, func() {
		gate.retry()
		err := gate.lookUpInternal()
		if err != nil && !failed {
			log.Error("Interfaces of the internal address not found", "err", err)
		}
		failed = err != nil
		if g.filter != nil {
			if drops, err := g.drops(); err == nil { // the metrics report the error
				watch.look(g.router.Datapath.Links, drops, time.Now(), log.Info)
			}
		}
	})
}

// socketReasons are the reasons for which the filter drops datagrams: the name in the metrics, the message in the log,
// and the counter.
var socketReasons = []struct {
	name, message string
	count         func(scionplane.SocketDrops) uint64
}{
	{stats.ReasonSCIONInterface, "Datagrams dropped at a socket: they came by another interface than the link's",
		func(d scionplane.SocketDrops) uint64 { return d.Interface }},
	{"scion-src-service", "Datagrams dropped at a socket: a service address of this AS as source",
		func(d scionplane.SocketDrops) uint64 { return d.Service }},
	{bfdReason, "BFD packets dropped at a socket: their TTL is below bfd_min_ttl",
		func(d scionplane.SocketDrops) uint64 { return d.BFD }},
}

// socketWatch logs what the filter has dropped, at most one line a minute for each link and reason. The zero value is
// ready.
type socketWatch struct {
	// logged holds the counts that the log has reported.
	logged map[socketDrop]uint64
	// quiet is when the next report may come.
	quiet map[socketDrop]time.Time
}

// socketDrop identifies a counter of the filter.
type socketDrop struct {
	link   int
	reason string
}

// look logs what drops has more than the last report. Drops has one entry for each link.
func (w *socketWatch) look(links []scionplane.Link, drops []scionplane.SocketDrops, now time.Time, info func(string, ...any)) {
	if w.logged == nil {
		w.logged, w.quiet = map[socketDrop]uint64{}, map[socketDrop]time.Time{}
	}
	for link, d := range drops {
		for _, r := range socketReasons {
			key, n := socketDrop{link, r.name}, r.count(d)
			if n == w.logged[key] || now.Before(w.quiet[key]) {
				continue
			}
			info(r.message, "link", links[link].Name, "packets", n-w.logged[key])
			w.logged[key], w.quiet[key] = n, now.Add(dropsQuiet)
		}
	}
}

var socketDropsDesc = prometheus.NewDesc("culvert_scion_socket_dropped_packets_total",
	"Datagrams dropped at the slow path's sockets, by link of the router and reason.",
	[]string{"link", "reason"}, nil)

// Describe implements prometheus.Collector.
func (g *linkGuard) Describe(ch chan<- *prometheus.Desc) { ch <- socketDropsDesc }

// Collect implements prometheus.Collector.
func (g *linkGuard) Collect(ch chan<- prometheus.Metric) {
	drops, err := g.drops()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(socketDropsDesc, err)
		return
	}
	for link, d := range drops {
		name := g.router.Datapath.Links[link].Name
		for _, r := range socketReasons {
			ch <- prometheus.MustNewConstMetric(socketDropsDesc, prometheus.CounterValue, float64(r.count(d)), name, r.name)
		}
	}
}
