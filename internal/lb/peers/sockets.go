// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sockets are the sockets of a Service. They may be passed on to the next one.
type Sockets struct {
	at  netip.AddrPort
	udp *net.UDPConn     // nil for what Join adds to others
	tcp *net.TCPListener // nil without bulk
}

// receiveBuffer holds what comes while the flow table is looked through.
const receiveBuffer = 4 << 20

// Open opens the sockets for the options that have does not have, nil for none. have may be nil. The host need not have the address
// yet.
func Open(o *Options, have *Sockets) (*Sockets, error) {
	s := &Sockets{at: o.Listen}
	config := net.ListenConfig{Control: s.control}
	more := have != nil && have.at == o.Listen
	if more && (o.Bulk == nil || have.tcp != nil) {
		return nil, nil
	}
	if !more {
		udp, err := config.ListenPacket(context.Background(), "udp", o.Listen.String())
		if err != nil {
			return nil, fmt.Errorf("listening for peers of the load balancer: %w", err)
		}
		s.udp = udp.(*net.UDPConn)
	}
	if o.Bulk == nil {
		return s, nil
	}
	tcp, err := config.Listen(context.Background(), "tcp", o.Listen.String())
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("listening for peers of the load balancer: %w", err)
	}
	s.tcp = tcp.(*net.TCPListener)
	return s, nil
}

func (s *Sockets) control(network, _ string, raw syscall.RawConn) (err error) {
	level, option := unix.SOL_IPV6, unix.IPV6_FREEBIND
	if s.at.Addr().Is4() {
		level, option = unix.SOL_IP, unix.IP_FREEBIND
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), level, option, 1)
		if network == "udp4" || network == "udp6" {
			err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer))
		}
	})
	return errors.Join(failed, err)
}

// Join returns the sockets for the options, from those in use and from what Open has returned for them. It closes the others.
func (s *Sockets) Join(more *Sockets, o *Options) *Sockets {
	if more != nil && more.udp != nil {
		_ = s.Close()
		return more
	}
	if more != nil {
		s.tcp = more.tcp
	}
	if o.Bulk == nil && s.tcp != nil {
		_ = s.tcp.Close()
		s.tcp = nil
	}
	return s
}

// Close closes the sockets.
func (s *Sockets) Close() (err error) {
	if s.udp != nil {
		err = s.udp.Close()
	}
	if s.tcp != nil {
		err = errors.Join(err, s.tcp.Close())
	}
	return err
}

// interrupt makes reads and accepts return, and block again once resume is called.
func (s *Sockets) interrupt() { s.deadline(time.Unix(1, 0)) }

func (s *Sockets) resume() { s.deadline(time.Time{}) }

func (s *Sockets) deadline(t time.Time) {
	_ = s.udp.SetReadDeadline(t)
	if s.tcp != nil {
		_ = s.tcp.SetDeadline(t)
	}
}
