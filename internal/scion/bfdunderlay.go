// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"unsafe"

	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/private/underlay/conn"
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/bfd"
)

// gatedUnderlay is the reference's UDP/IP underlay with a gate at the socket of each link that has a BFD session.
type gatedUnderlay struct {
	scionrouter.UnderlayProvider
	router *Router
	// gates are those of the links, by the link's index in Config.Links.
	gates map[int]*bfdGate
	// session is the session of the link that is being made, nil for a link without BFD.
	session *bfd.Session
}

// gateSessions puts gates into a data plane that has no links yet, and returns the map that they will be in. The
// reference does not export its underlays, so this reads the unexported field. The error is about a version of the
// reference without that field.
func gateSessions(c *scionrouter.Connector, r *Router) (map[int]*bfdGate, error) {
	f := reflect.ValueOf(&c.DataPlane).Elem().FieldByName("underlays")
	if !f.IsValid() || f.Type() != reflect.TypeFor[map[string]scionrouter.UnderlayProvider]() {
		return nil, errors.New("this version of the reference router does not let its BFD sessions be guarded")
	}
	underlays := *(*map[string]scionrouter.UnderlayProvider)(unsafe.Pointer(f.UnsafeAddr()))
	u := &gatedUnderlay{UnderlayProvider: underlays["udpip"], router: r, gates: map[int]*bfdGate{}}
	u.SetConnOpener(u)
	underlays["udpip"] = u
	return u.gates, nil
}

// NewExternalLink implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) NewExternalLink(qSize int, session *bfd.Session, local, remote string, ifID uint16,
	metrics *scionrouter.InterfaceMetrics) (scionrouter.Link, error) {

	u.session = session
	defer func() { u.session = nil }()
	return u.UnderlayProvider.NewExternalLink(qSize, session, local, remote, ifID, metrics)
}

// NewSiblingLink implements scionrouter.UnderlayProvider.
func (u *gatedUnderlay) NewSiblingLink(qSize int, session *bfd.Session, local, remote string,
	metrics *scionrouter.InterfaceMetrics) (scionrouter.Link, error) {

	u.session = session
	defer func() { u.session = nil }()
	return u.UnderlayProvider.NewSiblingLink(qSize, session, local, remote, metrics)
}

// UDPCanReuseLocal gives each sibling link a socket of its own, as without gates.
func (u *gatedUnderlay) UDPCanReuseLocal() bool { return conn.UDPCanReuseLocal() }

// Open opens the socket of a link, behind a gate if the link has a session.
func (u *gatedUnderlay) Open(local, remote netip.AddrPort, cfg *conn.Config) (scionrouter.BatchConn, error) {
	c, err := conn.New(local, remote, cfg)
	if err != nil || u.session == nil {
		return c, err
	}
	for i, l := range u.router.Datapath.Links {
		if l.Remote != unmap(remote) {
			continue
		}
		local := discriminator(u.router.Key, l.Local, l.Remote)
		u.session.LocalDiscriminator = layers.BFDDiscriminator(local)
		g := &bfdGate{link: l.Name, remote: l.Remote, localDisc: local, up: u.session.IsUp, refuseExtensions: u.router.Datapath.BFDMinTTL > 0}
		u.gates[i] = g
		return &gatedConn{BatchConn: c, gate: g}, nil
	}
	_ = c.Close()
	return nil, errors.New("no link to " + remote.String() + " in the configuration")
}

// discriminator returns the local discriminator of a session, never 0. It is derived from the AS's key, so that nobody
// without the key can guess it. It is the same after a restart, so that a far end which has not noticed the restart
// keeps its session.
func discriminator(key *[16]byte, local, remote netip.AddrPort) uint32 {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte("BFD discriminator " + local.String() + " " + remote.String()))
	return max(binary.BigEndian.Uint32(h.Sum(nil)), 1)
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
