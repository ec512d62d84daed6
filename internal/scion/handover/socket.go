// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/scionproto/scion/private/underlay/conn"
)

// Socket is a UDP socket of a link. The data planes that have the link read from it one after the other, each by a Tap. The last
// Tap closes it.
type Socket struct {
	conn.Conn
	holders Holders
}

// Open opens a socket and returns the first tap.
func Open(local, remote netip.AddrPort, cfg *conn.Config) (*Tap, error) {
	c, err := conn.New(local, remote, cfg)
	if err != nil {
		return nil, err
	}
	return newTap(&Socket{Conn: c}), nil
}

// Tap is the connection that a data plane has for a socket. It reads nothing before Begin and after Retire. What is written goes
// out all the time, so that packets which were read before Retire are sent after it.
type Tap struct {
	socket *Socket

	begun, retired, parked, closed    chan struct{}
	begin, retire, park, close, letGo sync.Once
}

func newTap(s *Socket) *Tap {
	s.holders.Hold()
	return &Tap{socket: s, begun: make(chan struct{}), retired: make(chan struct{}), parked: make(chan struct{}),
		closed: make(chan struct{})}
}

// Another returns a further tap of the same socket.
func (t *Tap) Another() *Tap { return newTap(t.socket) }

// Begin lets the tap read. Taps of the same socket are to be parked by then.
func (t *Tap) Begin() {
	t.begin.Do(func() {
		_ = t.socket.SetReadDeadline(time.Time{})
		close(t.begun)
	})
}

// Retire ends the reading for good. A reader that waits for packets is woken.
func (t *Tap) Retire() {
	t.retire.Do(func() {
		close(t.retired)
		select {
		case <-t.begun:
			_ = t.socket.SetReadDeadline(time.Unix(1, 0))
		default:
		}
	})
}

// Parked is closed once a reader has come back after Retire and waits for Close. It has no packet then that it has not passed on.
func (t *Tap) Parked() <-chan struct{} { return t.parked }

// ReadBatch implements the reference's BatchConn. After an error the reference reads again at once, so a retired tap blocks.
func (t *Tap) ReadBatch(msgs conn.Messages) (int, error) {
	select {
	case <-t.begun:
	case <-t.retired:
	case <-t.closed:
	}
	for {
		select {
		case <-t.closed:
			return 0, net.ErrClosed
		case <-t.retired:
			t.park.Do(func() { close(t.parked) })
			<-t.closed
			return 0, net.ErrClosed
		default:
		}
		n, err := t.socket.ReadBatch(msgs)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// WriteBatch implements the reference's BatchConn.
func (t *Tap) WriteBatch(msgs conn.Messages, flags int) (int, error) {
	if len(msgs) == 0 {
		return 0, nil
	}
	return t.socket.WriteBatch(msgs, flags)
}

// Close implements the reference's BatchConn. It ends a parked reader.
func (t *Tap) Close() error {
	t.close.Do(func() { close(t.closed) })
	return t.Abandon()
}

// Abandon closes the socket if no other tap has it. A parked reader stays.
func (t *Tap) Abandon() (err error) {
	t.letGo.Do(func() {
		if t.socket.holders.Drop() {
			err = t.socket.Close()
		}
	})
	return err
}
