// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

const (
	// connectRetry is the time between two attempts to connect, in seconds. gobgp gives up an attempt a second earlier.
	connectRetry = 3
	established  = "established"
	// gtsmTTL is the TTL of a packet that no router has forwarded (RFC 5082, section 3).
	gtsmTTL = 255
)

// session is the session with one neighbor. Each session has its own BGP server, because the same prefix has a different
// next hop for each neighbor, and nothing may pass from one neighbor to another.
type session struct {
	Neighbor

	asn         uint32 // of this machine
	routerID    netip.Addr
	holdTime    time.Duration
	restartTime time.Duration // 0 without a graceful restart
	log         *slog.Logger
	bgp         *server.BgpServer
	// previous is closed when the neighbor's last session is over, nil if there was none. over is closed when this one is.
	previous, over chan struct{}

	// lastError is not under mu, because gobgp's log sets it while gobgp holds locks.
	lastError atomic.Pointer[string]
	// unsent are the withdrawals that gobgp has not written yet. Its log tells of those that it has.
	unsent withdrawals

	mu          sync.Mutex // of the next hops in Neighbor, too
	communities []uint32
	med         uint32
	neighbors   []Neighbor // all of them
	state       string
	since       time.Time
	prefixes    []netip.Prefix
	// advertised are the next hops of the prefixes that the server announces. It is empty unless the session is established
	// or the restart is graceful.
	advertised map[netip.Prefix]netip.Addr
	// hops are the next hops of the established session.
	hops nextHops
	// renew is set if what is announced has to be announced again, with other attributes.
	renew bool
	// given is true after the first set, ready when the session may begin, begun when it connects, and ended when it is over for
	// good.
	given, ready, begun, ended bool
	unwatch                    context.CancelFunc // ends the events
}

func newSession(o *Options, n Neighbor) *session {
	x := &session{Neighbor: n, asn: o.ASN, routerID: o.RouterID, holdTime: o.HoldTime, restartTime: o.GracefulRestart, communities: o.Communities, med: o.MED,
		neighbors: o.Neighbors,
		log:       o.Log.With("neighbor", n.Address, "as", n.ASN),
		state:     "idle", since: time.Now(), advertised: make(map[netip.Prefix]netip.Addr),
		over: make(chan struct{}), unwatch: func() {}}
	x.bgp = server.NewBgpServer(server.LoggerOption(slog.New(&gobgpLog{out: x.log.Handler(), failed: x.failed, withdrawn: x.unsent.remove}), nil))
	go x.bgp.Serve()
	return x
}

// start starts a BGP server that does not listen, and accepts no prefixes from its neighbor.
func (x *session) start(ctx context.Context) error {
	err := x.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: x.asn, RouterId: x.routerID.String(), ListenPort: -1}})
	if err != nil {
		return err
	}
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := x.bgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	// Otherwise the neighbor's route for a prefix might be better than the local one, which would not be announced then.
	return x.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name:          "global",
		Direction:     api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies:      []*api.Policy{own},
		DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// connect starts connecting, which gobgp repeats until the session ends. It waits until the neighbor's last session is over.
func (x *session) connect(ctx context.Context) error {
	if x.previous != nil {
		<-x.previous
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil
	}
	ctx, x.unwatch = context.WithCancel(ctx)
	err := x.bgp.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: x.changed}, server.WatchPeer())
	if err != nil {
		return err
	}
	x.ready = true
	return x.begin()
}

// begin connects, with a graceful restart only after the first set. The caller holds the lock.
func (x *session) begin() error {
	if !x.ready || x.begun || x.ended || x.graceful() && !x.given {
		return nil
	}
	if x.graceful() {
		if err := x.update(); err != nil {
			return err
		}
	}
	x.begun = true
	return x.addPeer()
}

func (x *session) addPeer() error {
	hold := uint64(x.holdTime / time.Second)
	peer := &api.Peer{
		Conf:     &api.PeerConf{NeighborAddress: x.Address.String(), PeerAsn: x.ASN, AuthPassword: x.Password},
		Timers:   &api.Timers{Config: &api.TimersConfig{HoldTime: hold, KeepaliveInterval: hold / 3, ConnectRetry: connectRetry}},
		AfiSafis: []*api.AfiSafi{unicast(api.Family_AFI_IP), unicast(api.Family_AFI_IP6)},
	}
	if x.LocalAddress.IsValid() {
		peer.Transport = &api.Transport{LocalAddress: x.LocalAddress.String()}
	}
	if x.Multihop != 0 {
		peer.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(x.Multihop)}
	}
	if x.TTLSecurity {
		peer.TtlSecurity = &api.TtlSecurity{Enabled: true, TtlMin: gtsmTTL}
	}
	if x.graceful() {
		x.addRestart(peer)
	}
	return x.bgp.AddPeer(context.Background(), &api.AddPeerRequest{Peer: peer})
}

func unicast(afi api.Family_Afi) *api.AfiSafi {
	return &api.AfiSafi{Config: &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true}}
}

// end ends the session and its server. It notifies the neighbor unless the restart is graceful. It is called once.
func (x *session) end() {
	defer close(x.over)
	x.mu.Lock()
	x.ended = true
	x.mu.Unlock()
	if x.graceful() {
		x.leave()
	} else {
		x.bgp.Stop()
	}
	if x.previous != nil {
		<-x.previous
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unwatch()
	x.enter("idle", time.Now())
	x.prefixes = nil
	clear(x.advertised)
}

func (x *session) status() State {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := State{Address: x.Address, ASN: x.ASN, State: x.state, Since: x.since}
	if x.state == established {
		s.Announced = len(x.advertised)
		s.Prefixes = slices.SortedFunc(maps.Keys(x.advertised), netip.Prefix.Compare)
	}
	s.Carries4, s.Carries6 = x.carries(true), x.carries(false)
	if last := x.lastError.Load(); last != nil {
		s.LastError = *last
	}
	return s
}

// failed records an error, and logs it if it differs from the last one. An empty text means that there is no error.
func (x *session) failed(text string) {
	before := x.lastError.Swap(&text)
	if text != "" && (before == nil || *before != text) {
		x.log.Warn("BGP session", "error", text)
	}
}

// enter records the state. The caller holds the lock.
func (x *session) enter(state string, at time.Time) {
	if x.state != state {
		x.state, x.since = state, at
	}
}

// reasons explains gobgp's names for the end of a session.
var reasons = map[string]string{
	"read-failed":        "the neighbor closed the connection",
	"write-failed":       "the connection broke",
	"graceful-restart":   "the connection broke, or nothing was heard for the hold time",
	"hold-timer-expired": "nothing was heard from the neighbor for the hold time",
	"invalid-msg":        "the neighbor refused the session: compare the AS numbers on both sides",
}

// changed handles a new state of the session. gobgp calls it for one state after the other.
func (x *session) changed(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	state := strings.ToLower(strings.TrimPrefix(e.Peer.State.SessionState.String(), "BGP_FSM_"))
	x.mu.Lock()
	defer x.mu.Unlock()
	lost := x.state == established && state != established
	x.enter(state, at)
	reason := e.Peer.State.DisconnectMessage
	if text := reasons[reason]; text != "" {
		reason = text
	} else if !lost && !strings.HasPrefix(reason, "notification-") {
		reason = "" // not an error, but why there is a session or another attempt
	}
	switch {
	case state == established:
		x.failed("")
		x.log.Info("BGP session established")
	case lost:
		x.unsent.clear() // the next session announces only what is left, so there is nothing to withdraw
		if x.lastError.Store(&reason); !x.ended {
			x.log.Warn("BGP session lost", "reason", reason)
		}
	case reason != "" && !x.ended:
		x.failed(reason)
	}
	if x.ended || !x.graceful() && state != established && !lost {
		return
	}
	// A new session has to announce everything, and the next one may have other next hops.
	err := x.update()
	if lost && x.graceful() {
		err = errors.Join(err, x.reconnect())
	}
	if err != nil {
		x.failed(err.Error())
	}
}

// set replaces the prefixes to announce.
func (x *session) set(prefixes []netip.Prefix) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prefixes, x.given = prefixes, true
	if !x.begun {
		return x.begin()
	}
	if x.state != established && !x.graceful() {
		return nil
	}
	return x.update()
}

// update makes the server announce the prefixes with the next hops of the established session. Without a session it announces
// nothing, or if the restart is graceful, the prefixes with the next hops that the next session is expected to have. The
// caller holds the lock.
func (x *session) update() error {
	var (
		hops nextHops
		peer *api.Peer
	)
	switch {
	case x.state == established:
		var err error
		if peer, err = x.peer(); err != nil || peer == nil {
			return err
		}
		var problem string
		hops, problem = x.nextHops(peer)
		x.hops = hops
		x.failed(problem)
	case x.graceful():
		hops = x.expectedHops()
	}
	want := make(map[netip.Prefix]netip.Addr)
	for _, p := range x.prefixes {
		if hop := hops.of(p.Addr()); hop.IsValid() {
			want[p] = hop
		}
	}
	var announced, withdrawn []netip.Prefix
	defer func() { x.logChange(peer, announced, withdrawn) }()
	for p, hop := range x.advertised {
		if want[p].IsValid() {
			continue
		}
		if peer != nil && accepts(peer, p.Addr().Is4()) {
			x.unsent.add(p)
		}
		if err := x.bgp.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{x.path(p, hop)}}); err != nil {
			return fmt.Errorf("withdraw %v: %w", p, err)
		}
		withdrawn = append(withdrawn, p)
		delete(x.advertised, p)
	}
	for p, hop := range want {
		if x.advertised[p] == hop && !x.renew {
			continue
		}
		x.unsent.remove(p) // gobgp may leave out a withdrawal that an announcement follows
		if _, err := x.bgp.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{x.path(p, hop)}}); err != nil {
			return fmt.Errorf("announce %v: %w", p, err)
		}
		announced = append(announced, p)
		x.advertised[p] = hop
	}
	x.renew = false
	return nil
}

// logChange logs what has been announced and withdrawn on an established session. Without one, peer is nil.
func (x *session) logChange(peer *api.Peer, announced, withdrawn []netip.Prefix) {
	if peer == nil {
		return
	}
	for text, prefixes := range map[string][]netip.Prefix{"withdrawn": withdrawn, "announced": announced} {
		if len(prefixes) > 0 {
			slices.SortFunc(prefixes, netip.Prefix.Compare)
			x.log.Info(text, "prefixes", fmt.Sprint(prefixes))
		}
	}
}

// peer returns gobgp's description of the session, whose state is established, or nil if the session has ended meanwhile.
// gobgp sends the event of an established session before it treats the session as established. It would never send prefixes
// that were added in between, so peer waits for that.
func (x *session) peer() (peer *api.Peer, err error) {
	for end := time.Now().Add(x.holdTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = x.bgp.ListPeer(context.Background(), &api.ListPeerRequest{}, func(p *api.Peer) { peer = p })
		if err != nil || peer == nil || peer.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED {
			return peer, err
		}
		switch peer.State.SessionState {
		case api.PeerState_SESSION_STATE_IDLE, api.PeerState_SESSION_STATE_CONNECT, api.PeerState_SESSION_STATE_ACTIVE:
			return nil, nil // the session has ended, and the next one may be long in coming
		}
	}
	return nil, nil
}

// path returns the route for a prefix with a next hop of the same family.
func (x *session) path(p netip.Prefix, hop netip.Addr) *apiutil.Path {
	// These functions return no error for a valid prefix and a next hop of its family.
	nlri, _ := bgp.NewIPAddrPrefix(p)
	path := &apiutil.Path{Family: bgp.RF_IPv4_UC, Nlri: nlri, Age: time.Now().Unix(),
		Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}}
	if hop.Is4() {
		attr, _ := bgp.NewPathAttributeNextHop(hop)
		path.Attrs = append(path.Attrs, attr)
	} else {
		path.Family = bgp.RF_IPv6_UC
		attr, _ := bgp.NewPathAttributeMpReachNLRI(path.Family, []bgp.PathNLRI{{NLRI: nlri}}, hop)
		path.Attrs = append(path.Attrs, attr)
	}
	if x.med != 0 {
		path.Attrs = append(path.Attrs, bgp.NewPathAttributeMultiExitDisc(x.med))
	}
	if len(x.communities) != 0 {
		path.Attrs = append(path.Attrs, bgp.NewPathAttributeCommunities(x.communities))
	}
	return path
}
