// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/private/underlay/conn"
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/bfd"

	"culvert/internal/datapath"
	"culvert/internal/scion/handover"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/toobig"
)

// gatedUnderlay is the reference's UDP/IP underlay with a tap at the socket of each link, and a gate for each BFD session. Links
// that the former data plane has too get its sockets and sessions.
type gatedUnderlay struct {
	scionrouter.UnderlayProvider
	router *Router
	// former are the links of the data plane that this one follows, nil for none.
	former map[linkKey]*coreLink
	// links are those that were made, gates those among them with a session by their index in Config.Links.
	links map[linkKey]*coreLink
	gates map[int]*bfdGate
	// session is the session of the link that is being made, nil for a link without BFD.
	session *handover.Session
	// ring has the keys that follow a schedule, nil without one.
	ring *keyring.Ring
	// sizes answers packets that are too big for their link.
	sizes *toobig.Guard

	// started is closed once the data plane runs. It has given pool and queues by then.
	started chan struct{}
	pool    scionrouter.PacketPool
	queues  []chan *scionrouter.Packet
}

// linkKey identifies a link by the addresses of its socket. The internal link has no remote address.
type linkKey struct{ local, remote netip.AddrPort }

// coreLink is a link of a data plane.
type coreLink struct {
	link scionrouter.Link
	tap  *handover.Tap
	// shared says that the socket was the former data plane's.
	shared bool
	// session and gate are nil without BFD. made is the session that the data plane has made for itself. It differs from
	// session if the former data plane's session goes on.
	session, made *handover.Session
	gate          *bfdGate
	bfd           bfdConfig
	// moved says that the session goes on in the next data plane.
	moved bool
}

// bfdConfig is what a session cannot change while it runs.
type bfdConfig struct {
	mult      layers.BFDDetectMultiplier
	send, get time.Duration
	neighbor  uint64
}

// gateSessions puts an underlay with gates into a data plane that has no links yet. The reference does not export its
// underlays, so this reads the unexported field. The error is about a version of the reference without that field.
func gateSessions(c *scionrouter.Connector, r *Router, former *gatedUnderlay) (*gatedUnderlay, error) {
	underlays, err := handover.Unexported[map[string]scionrouter.UnderlayProvider](&c.DataPlane, "underlays")
	if err != nil {
		return nil, err
	}
	u := &gatedUnderlay{UnderlayProvider: (*underlays)["udpip"], router: r, links: map[linkKey]*coreLink{},
		gates: map[int]*bfdGate{}, started: make(chan struct{})}
	own := toobig.Router{IA: addr.IA(r.Datapath.LocalIA), Host: addr.HostIP(r.Datapath.Links[0].Local.Addr()),
		Authenticate: r.Config.Features.ExperimentalSCMPAuthentication}
	if former != nil {
		u.former, u.sizes = former.links, toobig.NewGuard(own, r.fragment, former.sizes)
	} else {
		u.sizes = toobig.NewGuard(own, r.fragment, nil)
	}
	u.SetConnOpener(u)
	(*underlays)["udpip"] = u
	return u, nil
}

// Start implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) Start(ctx context.Context, pool scionrouter.PacketPool, queues []chan *scionrouter.Packet) {
	u.pool, u.queues = pool, queues
	u.sizes.Start(pool)
	u.UnderlayProvider.Start(ctx, pool, queues)
	close(u.started)
}

// NewInternalLink implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) NewInternalLink(local string, qSize int, metrics *scionrouter.InterfaceMetrics) (scionrouter.Link, error) {
	link, err := u.UnderlayProvider.NewInternalLink(local, qSize, metrics)
	return u.made(link, err, local, "")
}

// NewExternalLink implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) NewExternalLink(qSize int, session *bfd.Session, local, remote string, ifID uint16,
	metrics *scionrouter.InterfaceMetrics) (scionrouter.Link, error) {

	session = u.begin(session, local, remote)
	link, err := u.UnderlayProvider.NewExternalLink(qSize, session, local, remote, ifID, metrics)
	if link, err = u.made(link, err, local, remote); err != nil {
		return nil, err
	}
	key := keyOf(local, remote)
	of, _, err := u.linkOf(key)
	if err != nil {
		return nil, err
	}
	return u.sizes.Link(link, of.Name, key.local, key.remote)
}

// NewSiblingLink implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) NewSiblingLink(qSize int, session *bfd.Session, local, remote string,
	metrics *scionrouter.InterfaceMetrics) (scionrouter.Link, error) {

	if l := u.links[keyOf(local, remote)]; l != nil {
		return l.link, nil // of another interface of the sibling
	}
	session = u.begin(session, local, remote)
	link, err := u.UnderlayProvider.NewSiblingLink(qSize, session, local, remote, metrics)
	return u.made(link, err, local, remote)
}

func keyOf(local, remote string) linkKey {
	parse := func(text string) netip.AddrPort {
		a, _ := netip.ParseAddrPort(text) // LoadTopology has parsed it
		return unmap(a)
	}
	return linkKey{parse(local), parse(remote)}
}

// linkOf returns the link with an address at the far end, and its index in Config.Links.
func (u *gatedUnderlay) linkOf(key linkKey) (scionplane.Link, int, error) {
	all := u.router.Datapath.Links
	i := slices.IndexFunc(all, func(l scionplane.Link) bool { return l.Remote == key.remote })
	if i < 0 {
		return scionplane.Link{}, i, errors.New("no link to " + key.remote.String() + " in the configuration")
	}
	return all[i], i, nil
}

// begin notes the session of the link that is made next, and returns the one that the link gets: the former data plane's if the
// link has one that can go on.
func (u *gatedUnderlay) begin(session *bfd.Session, local, remote string) *bfd.Session {
	if session == nil {
		u.session = nil
		return nil
	}
	u.session = handover.NewSession(session)
	if f := u.former[keyOf(local, remote)]; f != nil && f.session != nil && f.bfd == u.config(session, keyOf(local, remote)) {
		return f.session.Session
	}
	return session
}

// config returns what a session of a link cannot change.
func (u *gatedUnderlay) config(s *bfd.Session, key linkKey) bfdConfig {
	c := bfdConfig{mult: s.DetectMult, send: s.DesiredMinTxInterval, get: s.RequiredMinRxInterval}
	for _, l := range u.router.Datapath.Links {
		if (linkKey{l.Local, l.Remote}) == key {
			c.neighbor = l.NeighborIA
		}
	}
	return c
}

// made completes the link that was just made. If that has failed, nothing of it stays.
func (u *gatedUnderlay) made(link scionrouter.Link, err error, local, remote string) (scionrouter.Link, error) {
	u.session = nil
	if l := u.links[keyOf(local, remote)]; l != nil && err == nil {
		l.link = link
	}
	return link, err
}

// UDPCanReuseLocal gives each sibling link a socket of its own, as without gates.
func (u *gatedUnderlay) UDPCanReuseLocal() bool { return conn.UDPCanReuseLocal() }

// Open opens the socket of a link, or takes the former data plane's, behind a gate if the link has a session.
func (u *gatedUnderlay) Open(local, remote netip.AddrPort, cfg *conn.Config) (scionrouter.BatchConn, error) {
	key := linkKey{unmap(local), unmap(remote)}
	l := &coreLink{made: u.session, session: u.session}
	former := u.former[key]
	if former != nil {
		l.tap, l.shared = former.tap.Another(), true
	} else {
		var err error
		if l.tap, err = handover.Open(local, remote, cfg); err != nil {
			return nil, err
		}
	}
	u.links[key] = l
	link, i, err := u.linkOf(key)
	if err != nil {
		return nil, err
	}
	socket := u.keyed(l.tap)
	if link.Scope != scionplane.ScopeExternal {
		if socket, err = u.sizes.Socket(socket, link.Name, key.local, key.remote); err != nil {
			return nil, err
		}
	}
	if u.session == nil {
		return socket, nil
	}
	l.bfd = u.config(u.session.Session, key)
	disc := u.router.discriminator(link)
	if former != nil && former.session != nil && former.bfd == l.bfd {
		l.session, disc = former.session, former.gate.localDisc
	} else {
		u.session.LocalDiscriminator = layers.BFDDiscriminator(disc)
	}
	l.gate = &bfdGate{link: link.Name, remote: link.Remote, localDisc: disc, up: l.session.IsUp,
		refuseExtensions: u.router.Datapath.BFDMinTTL > 0}
	u.gates[i] = l.gate
	return &gatedConn{BatchConn: socket, gate: l.gate}, nil
}

// keyed has the packets of a link noted in the ring, if keys follow a schedule.
func (u *gatedUnderlay) keyed(tap *handover.Tap) scionrouter.BatchConn {
	if u.ring == nil {
		return tap
	}
	return u.ring.Conn(tap)
}

// discriminator returns the local discriminator of a link's session: the one that the link has had, or one that is derived from the
// oldest key.
func (r *Router) discriminator(l scionplane.Link) uint32 {
	if d := r.discriminators[scionplane.Pair{l.Local, l.Remote}]; d != 0 {
		return d
	}
	return discriminator(r.discriminatorKey(), l.Local, l.Remote)
}

// discriminatorKey returns the key that discriminators of new links are derived from. Another key in its place does not change
// those that there are: followDiscriminators and readDiscriminators.
func (r *Router) discriminatorKey() *[16]byte { return &r.Keys[0].Secret }

// discriminator returns a discriminator, never 0. It is derived from the AS's key, so that nobody without the key can guess it.
func discriminator(key *[16]byte, local, remote netip.AddrPort) uint32 {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte("BFD discriminator " + local.String() + " " + remote.String()))
	return max(binary.BigEndian.Uint32(h.Sum(nil)), 1)
}

// linkDiscriminators returns the discriminator of each of Datapath.Links, 0 for the internal one. A link without BFD has one too, for
// when BFD is switched on.
func (r *Router) linkDiscriminators() []uint32 {
	all := make([]uint32, len(r.Datapath.Links))
	for n, l := range r.Datapath.Links {
		if l.Scope != scionplane.ScopeInternal {
			all[n] = r.discriminator(l)
		}
	}
	return all
}

// followDiscriminators keeps the discriminators of another configuration of the process.
func (r *Router) followDiscriminators(former *Router) {
	kept := make(map[scionplane.Pair]uint32)
	for n, d := range former.linkDiscriminators() {
		kept[scionplane.Pair{former.Datapath.Links[n].Local, former.Datapath.Links[n].Remote}] = d
	}
	r.discriminators = kept
}

// readDiscriminators keeps the discriminators of the process before, which it has left with the data plane. So a far end that has not
// noticed the restart keeps its session, also if the keys have changed. A data plane that cannot be read is refused later, by the node.
func (r *Router) readDiscriminators() {
	inst, err := datapath.OpenHere(r.ID())
	if inst == nil || err != nil {
		return
	}
	defer inst.Close()
	r.discriminators = scionplane.Of(inst).Discriminators()
}

// gatedConn is a link's socket with its gate.
type gatedConn struct {
	scionrouter.BatchConn
	gate *bfdGate
}

// ReadBatch implements scionrouter.BatchConn.
func (c *gatedConn) ReadBatch(msgs conn.Messages) (int, error) {
	n, err := c.BatchConn.ReadBatch(msgs)
	for i := range max(n, 0) {
		c.gate.receive(msgs[i].Buffers[0][:msgs[i].N])
	}
	return n, err
}

// WriteBatch implements scionrouter.BatchConn. It stops before a packet that must not be sent: the reference drops the
// first packet that was not written, and goes on with the next one.
func (c *gatedConn) WriteBatch(msgs conn.Messages, flags int) (int, error) {
	for i := range msgs {
		if !c.gate.send(msgs[i].Buffers[0]) {
			msgs = msgs[:i]
			break
		}
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	return c.BatchConn.WriteBatch(msgs, flags)
}
