// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/vishvananda/netlink"
)

const (
	// deferral is how long gobgp waits for a neighbor's prefixes before it announces, in seconds. The Speaker does not use
	// them.
	deferral = 1
	// WriteWait bounds how long the end of a session with a graceful restart waits until the neighbor has its withdrawals. It
	// takes no time unless the machine or the link is busy, or the neighbor does not read.
	WriteWait = 5 * time.Second
)

// graceful reports whether the neighbor keeps the prefixes when the session ends.
func (x *session) graceful() bool { return x.restartTime > 0 }

// addRestart offers the neighbor a graceful restart. gobgp declares that forwarding went on only if it has been restarted, and
// only in the first session of a peer. So LocalRestarting is set, and reconnect makes every session the first one.
func (x *session) addRestart(peer *api.Peer) {
	peer.GracefulRestart = &api.GracefulRestart{
		Enabled: true, RestartTime: uint32(x.restartTime / time.Second), DeferralTime: deferral, LocalRestarting: true,
	}
	for _, f := range peer.AfiSafis {
		f.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
	}
}

// reconnect replaces the peer after a session was lost. The caller holds the lock.
func (x *session) reconnect() error {
	err := x.bgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: x.Address.String()})
	if err != nil {
		return err
	}
	return x.addPeer()
}

// expectedHops returns the next hops that the next session will probably have. The prefixes must be there before the session
// is, because gobgp tells the neighbor at once that it has announced everything. If the guess is wrong, update corrects it
// later.
func (x *session) expectedHops() nextHops {
	local := x.LocalAddress
	if !local.IsValid() {
		routes, err := netlink.RouteGet(x.Address.AsSlice())
		if err != nil || len(routes) == 0 {
			return nextHops{}
		}
		source, _ := netip.AddrFromSlice(routes[0].Src)
		local = source.Unmap()
	}
	hops, _ := x.nextHopsFrom(local, func(bool) bool { return true })
	return hops
}

// withdrawals is a set of withdrawn prefixes. It has a lock of its own, because gobgp's log changes it while gobgp holds locks.
type withdrawals struct {
	mu       sync.Mutex
	prefixes []netip.Prefix
}

func (w *withdrawals) add(p netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prefixes = append(w.prefixes, p)
}

func (w *withdrawals) remove(prefixes ...netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prefixes = slices.DeleteFunc(w.prefixes, func(p netip.Prefix) bool { return slices.Contains(prefixes, p) })
}

func (w *withdrawals) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prefixes = nil
}

// all returns the prefixes in the order in which they were withdrawn.
func (w *withdrawals) all() []netip.Prefix {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.prefixes)
}

// leave closes the connection without a notification, once the neighbor has read all withdrawals. gobgp notifies a neighbor that
// offers no graceful restart all the same.
func (x *session) leave() {
	end := time.Now().Add(WriteWait)
	for ; x.isEstablished() && !x.delivered() && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	unsent := x.unsent.all()
	var held []*net.TCPConn
	if x.isEstablished() {
		held = x.hold()
	}
	// It returns an error only if the server was not started.
	_ = x.bgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: true})
	if !linger(held, end) || len(unsent) > 0 {
		x.log.Warn("the neighbor may not have got all withdrawals before the BGP session ended: it keeps those prefixes for the restart time",
			"unsent", fmt.Sprint(unsent), "restart_time", x.restartTime)
	}
}

// delivered reports whether all withdrawals have been written and the neighbor has acknowledged all data.
func (x *session) delivered() bool {
	if len(x.unsent.all()) > 0 {
		return false
	}
	connections, err := x.connections()
	if err != nil {
		return !errors.Is(err, netlink.ErrDumpInterrupted) // a kernel without inet_diag cannot report it
	}
	return !slices.ContainsFunc(connections, func(s *netlink.Socket) bool { return s.WQueue > 0 })
}

func (x *session) isEstablished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == established
}
