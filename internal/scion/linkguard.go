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
	// filter is nil if the process may not load it. The sockets have a simpler one then, that does not
	// look at the interface.
	filter *scionplane.SocketGuard
	// bound are the devices that the links' sockets are bound to, by link, 0 for none.
	bound []int
}

// guardLinks puts the filter on the sockets of all links. They take nothing until a gate has told
// them by which interfaces.
func guardLinks(r *Router) (*linkGuard, error) {
	g := &linkGuard{router: r, bound: make([]int, len(r.Datapath.Links))}
	filter, err := scionplane.NewSocketGuard(r.Datapath)
	if errors.Is(err, os.ErrPermission) {
		return g, guardSockets(r.Control.IA, r.Datapath.BFDMinTTL, r.Sockets())
	}
	if err != nil {
		return nil, err
	}
	g.filter = filter
	if err := g.addSockets(); err != nil {
		filter.Close()
		return nil, err
	}
	return g, nil
}

func (g *linkGuard) addSockets() error {
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

// plain is an address as the kernel has it: IPv4 as such, and without a zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// follow has the gate rule the sockets from now on.
func (g *linkGuard) follow(ctx context.Context, gate *gate, t deviceTracker) error {
	if g.filter == nil {
		gate.info("The slow path takes datagrams by any interface: without CAP_BPF and CAP_NET_ADMIN it cannot look at it")
	} else if err := gate.add(g.filter); err != nil {
		return err
	}
	return gate.start(ctx, t, g.bound)
}

const (
	// gatePeriod is how often the gate looks for what nobody tells of, and the log for drops.
	gatePeriod = time.Second
	// dropsQuiet is how long the log says no more of a link's drops.
	dropsQuiet = time.Minute
)

// watch keeps the gate up to date, and tells the log of drops, until ctx ends.
func (g *linkGuard) watch(ctx context.Context, gate *gate) {
	var told socketWatch
	failed := false
	every(ctx, gatePeriod, func() {
		gate.again()
		err := gate.look()
		if err != nil && !failed {
			log.Error("Interfaces of the internal address not found", "err", err)
		}
		failed = err != nil
		if g.filter != nil {
			if drops, err := g.filter.Drops(); err == nil { // if not, the metrics tell
				told.look(g.router.Datapath.Links, drops, time.Now(), log.Info)
			}
		}
	})
}

// socketReasons are why sockets drop datagrams: the name in the metrics, and what the log says.
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

// socketWatch tells the log what sockets have dropped since it was told last, a line a minute for each link and reason.
// The zero value has told nothing.
type socketWatch struct {
	said  map[socketDrop]uint64
	quiet map[socketDrop]time.Time
}

type socketDrop struct {
	link   int
	reason string
}

func (w *socketWatch) look(links []scionplane.Link, drops []scionplane.SocketDrops, now time.Time, info func(string, ...any)) {
	if w.said == nil {
		w.said, w.quiet = map[socketDrop]uint64{}, map[socketDrop]time.Time{}
	}
	for link, d := range drops {
		for _, r := range socketReasons {
			key, n := socketDrop{link, r.name}, r.count(d)
			if n == w.said[key] || now.Before(w.quiet[key]) {
				continue
			}
			info(r.message, "link", links[link].Name, "packets", n-w.said[key])
			w.said[key], w.quiet[key] = n, now.Add(dropsQuiet)
		}
	}
}

var socketDropsDesc = prometheus.NewDesc("culvert_socket_dropped_packets_total",
	"Datagrams dropped at the slow path's sockets, by SCION interface and reason.",
	[]string{"interface", "reason"}, nil)

// Describe implements prometheus.Collector.
func (g *linkGuard) Describe(ch chan<- *prometheus.Desc) { ch <- socketDropsDesc }

// Collect implements prometheus.Collector.
func (g *linkGuard) Collect(ch chan<- prometheus.Metric) {
	drops, err := g.filter.Drops()
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
