// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"culvert/internal/lab"
)

// echoBuffer is the receive buffer of a server in bytes: room for a minute in which the machine is busy.
const echoBuffer = 64 << 20

// tally counts the packets of a kind by number.
type tally [numbers]atomic.Uint64

func (t *tally) of(number int) uint64 { return t[number].Load() }

func (t *tally) all() []uint64 {
	counts := make([]uint64, numbers)
	for n := range t {
		counts[n] = t[n].Load()
	}
	return counts
}

// echo is the UDP servers of the backends. Each answers a packet with one of the kind behind it and of the same number.
type echo struct {
	lab *lab.Lab
	// received and answered count by the kind of the request.
	received, answered map[int]*tally
	// strange counts packets without a number, failed those whose answer could not be sent.
	strange, failed atomic.Uint64

	mu      sync.Mutex
	sockets map[string][]*net.UDPConn // by namespace
}

// newEcho returns servers for the kinds of requests that are given. They are not there before listen.
func newEcho(l *lab.Lab, kinds ...int) *echo {
	e := &echo{lab: l, received: map[int]*tally{}, answered: map[int]*tally{}, sockets: map[string][]*net.UDPConn{}}
	for _, k := range kinds {
		e.received[k], e.answered[k] = &tally{}, &tally{}
	}
	return e
}

// listen starts the servers of a backend at addresses.
func (e *echo) listen(ns string, at ...netip.AddrPort) error {
	for _, addr := range at {
		var conn *net.UDPConn
		err := e.lab.Do(ns, func() (err error) { // the socket is made by this thread
			conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
			return err
		})
		if err != nil {
			return fmt.Errorf("listen on %s in %s: %w", addr, ns, err)
		}
		err = withFD(conn, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, echoBuffer) })
		if err != nil {
			return fmt.Errorf("set the receive buffer of a socket: %w", err)
		}
		e.mu.Lock()
		e.sockets[ns] = append(e.sockets[ns], conn)
		e.mu.Unlock()
		go e.serve(conn)
	}
	return nil
}

// withFD calls f with the file descriptor of a socket.
func withFD(conn syscall.Conn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// deaf has the sockets of a backend drop all that comes, as if its server were away, or take it again. The kernel counts what is
// dropped so as errors of the socket. What is in the sockets is answered.
func (e *echo) deaf(ns string, on bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	for _, c := range e.sockets[ns] {
		err := withFD(c, func(fd int) error {
			if on {
				return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
			}
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		})
		if err != nil {
			return fmt.Errorf("set the filter of a socket in %s: %w", ns, err)
		}
	}
	return nil
}

// close ends the servers of a backend.
func (e *echo) close(ns string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.sockets[ns] {
		c.Close()
	}
	delete(e.sockets, ns)
}

func (e *echo) serve(conn *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		e.answer(conn, buf[:n], from)
	}
}

func (e *echo) answer(conn *net.UDPConn, packet []byte, from netip.AddrPort) {
	end := len(packet)
	if end < 12 || binary.BigEndian.Uint32(packet[end-12:]) != mark {
		e.strange.Add(1)
		return
	}
	tag := binary.BigEndian.Uint32(packet[end-8:])
	kind, number := int(tag/numbers), tag%numbers
	if e.received[kind] == nil {
		e.strange.Add(1)
		return
	}
	e.received[kind][number].Add(1)
	tag += numbers
	binary.BigEndian.PutUint32(packet[end-8:], tag)
	binary.BigEndian.PutUint32(packet[end-4:], ^tag)
	if _, err := conn.WriteToUDPAddrPort(packet, from); err != nil {
		e.failed.Add(1)
		return
	}
	e.answered[kind][number].Add(1)
}
