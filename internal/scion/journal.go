// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/scion/scionplane"
)

const (
	// journalPeriod is how often the journal checks the addresses of the host.
	journalPeriod = 3 * time.Second
	// firstAnswers is how long neighbors and BFD sessions may take to answer before the log reports
	// that they have not.
	firstAnswers = 5 * time.Second
)

// journal logs faults of the fast path and recoveries from them, each once.
type journal struct {
	router *Router
	plane  DataPlane
	// info writes to the log.
	info func(message string, fields ...any)
	// addresses returns the addresses of this network namespace.
	addresses func() (map[netip.Addr]bool, error)

	mu sync.Mutex
	// resolved marks the links that have a next hop.
	resolved []bool
	// unresolvedLogged marks the links that the log has reported without a next hop.
	unresolvedLogged []bool

	// missing are the router's own addresses that no interface has.
	missing map[netip.Addr]bool
}

func newJournal(r *Router, plane DataPlane) *journal {
	n := len(r.Datapath.Links)
	return &journal{router: r, plane: plane, info: log.Info, addresses: localAddresses,
		resolved: make([]bool, n), unresolvedLogged: make([]bool, n), missing: map[netip.Addr]bool{}}
}

// localAddresses returns the addresses of the current network namespace, without zones.
func localAddresses() (map[netip.Addr]bool, error) {
	carriers, err := addressCarriers()
	if err != nil {
		return nil, err
	}
	found := make(map[netip.Addr]bool, len(carriers))
	for a := range carriers {
		found[a] = true
	}
	return found, nil
}

// start logs the interfaces, the mode and the keys of the fast path.
func (j *journal) start() {
	mode, origin := "native", "fresh"
	if j.plane.Generic() {
		mode = "generic"
	}
	if j.plane.Adopted() {
		origin = "adopted"
	}
	j.info("Fast path attached", "interfaces", strings.Join(j.plane.Attached(), ","), "mode", mode, "origin", origin)
	keys, err := j.plane.Keys()
	if err != nil {
		log.Error("Listing the fast path's keys", "err", err)
	}
	for _, k := range keys {
		j.info("Fast path key", "index", k.Index, "id", k.ID)
	}
}

// run watches until ctx ends.
func (j *journal) run(ctx context.Context) {
	wait := time.AfterFunc(firstAnswers, j.endWait)
	defer wait.Stop()
	every(ctx, journalPeriod, j.look)
}

// nextHop notes whether a link has a next hop, and logs one that was found late.
func (j *journal) nextHop(link int, resolved bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resolved[link] = resolved
	if j.unresolvedLogged[link] && resolved {
		j.unresolvedLogged[link] = false
		j.info("Link has a next hop now", "link", j.router.Datapath.Links[link].Name)
	}
}

// endWait logs the links that have no next hop by now.
func (j *journal) endWait() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, l := range j.router.Datapath.Links {
		if l.Scope == scionplane.ScopeInternal || j.resolved[i] {
			continue
		}
		j.unresolvedLogged[i] = true
		j.info("Link has no next hop: its packets take the slow path", "link", l.Name, "remote", l.Remote)
	}
}

// look logs own addresses that have gone or come back. The node logs what becomes of the interfaces.
func (j *journal) look() {
	here, err := j.addresses()
	if err != nil {
		return // the next call tries again
	}
	for _, at := range j.router.Sockets() {
		addr := at.Addr().WithZone("")
		if addr.IsLoopback() || here[addr] != j.missing[addr] {
			continue
		}
		j.missing[addr] = !here[addr]
		if j.missing[addr] {
			j.info("No interface has the router's own address any more", "address", addr)
		} else {
			j.info("The router's own address is back", "address", addr)
		}
	}
}
