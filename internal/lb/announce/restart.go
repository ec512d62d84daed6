// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/vishvananda/netlink"
)

const (
	// deferral is how long gobgp waits for a neighbor's prefixes before it announces, in seconds. The Speaker does not use
	// them.
	deferral = 1
	// writeWait bounds how long the end of a session waits for its withdrawals to be written. It takes no time unless the
	// machine is busy or the neighbor does not read.
	writeWait = 5 * time.Second
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

// sent records that withdrawals have been written.
func (x *session) sent(withdrawn int) {
	x.unsent.Add(int64(-withdrawn))
}

// leave closes the connection without a notification, once all withdrawals have been written. gobgp notifies a neighbor that
// offers no graceful restart all the same.
func (x *session) leave() {
	for end := time.Now().Add(writeWait); x.unsent.Load() > 0 && x.isEstablished(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.log.Warn("not all withdrawals were sent before the BGP session ended: the neighbor keeps these prefixes for the restart time",
				"prefixes", x.unsent.Load(), "restart_time", x.restartTime)
			break
		}
	}
	// It returns an error only if the server was not started.
	_ = x.bgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: true})
}

func (x *session) isEstablished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == established
}
