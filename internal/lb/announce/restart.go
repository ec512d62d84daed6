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
	// deferral is how long a neighbor's own prefixes are waited for before it is told ours, in seconds; they are not used.
	deferral = 1
	// writeWait bounds how long the end of a session waits for its withdrawals to be written. A neighbor that reads takes
	// them at once; a busy machine may need seconds.
	writeWait = 5 * time.Second
)

// graceful tells whether the neighbor is to keep the prefixes when the session ends.
func (x *session) graceful() bool { return x.restartTime > 0 }

// addRestart offers the neighbor a graceful restart. gobgp says that packets were forwarded all the time only when it takes
// itself for restarted, and then only in the first session of a peer: so that is what it is told, and again makes every
// session a first one.
func (x *session) addRestart(peer *api.Peer) {
	peer.GracefulRestart = &api.GracefulRestart{
		Enabled: true, RestartTime: uint32(x.restartTime / time.Second), DeferralTime: deferral, LocalRestarting: true,
	}
	for _, f := range peer.AfiSafis {
		f.MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
	}
}

// again connects anew after a session was lost. The caller holds the lock.
func (x *session) again() error {
	err := x.bgp.DeletePeer(context.Background(), &api.DeletePeerRequest{Address: x.Address.String()})
	if err != nil {
		return err
	}
	return x.addPeer()
}

// expected are the next hops that the next session will have: what it announces has to be there before it is, for gobgp tells
// the neighbor at once that this was all. If the guess is wrong the session puts it right.
func (x *session) expected() nextHops {
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

// sent notes how many withdrawals have been written.
func (x *session) sent(withdrawn int) {
	x.unsent.Add(int64(-withdrawn))
}

// leave closes the connection without a word, once what was withdrawn has been. A neighbor that offers no graceful restart is
// notified all the same.
func (x *session) leave() {
	for end := time.Now().Add(writeWait); x.unsent.Load() > 0 && x.isEstablished(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.log.Warn("not all withdrawals were sent before the BGP session ended: the neighbor keeps these prefixes for the restart time",
				"prefixes", x.unsent.Load(), "restart_time", x.restartTime)
			break
		}
	}
	// It fails only when it has not been started.
	_ = x.bgp.StopBgp(context.Background(), &api.StopBgpRequest{AllowGracefulRestart: true})
}

func (x *session) isEstablished() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == established
}
