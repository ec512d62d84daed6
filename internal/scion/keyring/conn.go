// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"net"

	"github.com/scionproto/scion/private/underlay/conn"
	scionrouter "github.com/scionproto/scion/router"
)

// Conn returns a link's socket whose packets are noted in the ring.
func (r *Ring) Conn(socket scionrouter.BatchConn) scionrouter.BatchConn {
	return &keyedConn{BatchConn: socket, reader: r.Reader()}
}

type keyedConn struct {
	scionrouter.BatchConn
	reader *Reader
	// held are packets that were read and are to wait for those before them.
	held []heldPacket
}

type heldPacket struct {
	raw  []byte
	from net.Addr
}

// ReadBatch implements scionrouter.BatchConn. It ends a batch before a packet that has to wait.
func (c *keyedConn) ReadBatch(msgs conn.Messages) (int, error) {
	n, err := c.read(msgs)
	for i := range max(n, 0) {
		raw := msgs[i].Buffers[0][:msgs[i].N]
		switch {
		case i == 0:
			c.reader.Note(raw)
		case !c.reader.Try(raw):
			c.hold(msgs[i:n])
			return i, err
		}
	}
	return n, err
}

// read returns the packets that were held back, or reads from the socket if there are none.
func (c *keyedConn) read(msgs conn.Messages) (int, error) {
	if len(c.held) == 0 {
		return c.BatchConn.ReadBatch(msgs)
	}
	n := min(len(msgs), len(c.held))
	for i, h := range c.held[:n] {
		msgs[i].N, msgs[i].Addr = copy(msgs[i].Buffers[0], h.raw), h.from
	}
	c.held = c.held[n:]
	return n, nil
}

// hold keeps packets for the next batch, in front of those that are held already.
func (c *keyedConn) hold(msgs conn.Messages) {
	held := make([]heldPacket, len(msgs), len(msgs)+len(c.held))
	for i, m := range msgs {
		held[i] = heldPacket{raw: append([]byte(nil), m.Buffers[0][:m.N]...), from: m.Addr}
	}
	c.held = append(held, c.held...)
}
