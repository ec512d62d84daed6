// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"errors"
	"net"
	"net/netip"

	"github.com/scionproto/scion/private/underlay/conn"
	"github.com/scionproto/scion/router"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionpkt"
)

// errRefused is what the kernel answers to a send that it cannot carry out.
var errRefused = errors.New("judge: the kernel refuses to send this")

// opener gives the udpip underlay connections in memory. It implements udpip.ConnOpener.
type opener struct{ j *Judge }

// UDPCanReuseLocal makes sibling links connected ones, as on Linux.
func (opener) UDPCanReuseLocal() bool { return true }

// Open finds the link of the two addresses and makes its connection.
func (o opener) Open(l, r netip.AddrPort, _ *conn.Config) (router.BatchConn, error) {
	for i := range o.j.net.Links {
		link := &o.j.net.Links[i]
		if link.Local == l && link.Remote == r && o.j.conns[i] == nil {
			c := &memConn{
				j: o.j, link: i, in: make(chan inbound, 1), closed: make(chan struct{}),
			}
			if o.j.ring != nil {
				c.reader = o.j.ring.Reader()
			}
			o.j.conns[i] = c
			return c, nil
		}
	}
	return nil, errors.New("judge: the reference opens a socket that the network does not have")
}

// inbound is one datagram on its way to the reference.
type inbound struct {
	src     *net.UDPAddr
	payload []byte
}

// memConn stands for one UDP socket of the reference.
type memConn struct {
	j      *Judge
	link   int
	in     chan inbound
	closed chan struct{}
	// reader notes packets in the ring of the keys, nil without one.
	reader *keyring.Reader
}

// ReadBatch hands out the next datagram. Its caller comes here with a free packet buffer in hand,
// and the judge leaves none in the pool: so this call says that the previous packet is done.
func (c *memConn) ReadBatch(msgs conn.Messages) (int, error) {
	select {
	case c.j.idle <- struct{}{}:
	case <-c.closed:
		return 0, net.ErrClosed
	}
	select {
	case d := <-c.in:
		// A datagram larger than the buffer is cut, as the kernel does.
		msgs[0].N = copy(msgs[0].Buffers[0], d.payload)
		msgs[0].Addr = d.src
		if c.reader != nil {
			c.reader.Note(msgs[0].Buffers[0][:msgs[0].N])
		}
		return 1, nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// WriteBatch notes what the reference sends.
func (c *memConn) WriteBatch(msgs conn.Messages, _ int) (int, error) {
	for i := range msgs {
		link := &c.j.net.Links[c.link]
		dst := link.Remote
		if link.Scope == scionpkt.Internal {
			a, ok := msgs[i].Addr.(*net.UDPAddr)
			if !ok || a == nil {
				return i, errRefused
			}
			dst = c.j.correctPort(a.AddrPort())
			// The socket belongs to one family, and port 0 is nobody's.
			if dst.Addr().Is4() != link.Local.Addr().Is4() || dst.Port() == 0 {
				return i, errRefused
			}
		}
		c.j.sent = append(c.j.sent, sent{
			link: c.link, dst: dst, payload: append([]byte(nil), msgs[i].Buffers[0]...),
		})
	}
	return len(msgs), nil
}

// Close ends the connection. The reference calls it once.
func (c *memConn) Close() error {
	close(c.closed)
	return nil
}
