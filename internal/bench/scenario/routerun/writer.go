// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// writer changes routes of a namespace by netlink, in large batches. A batch of thousands of changes takes one system call
// and one answer. Netlink libraries use a call and an answer for each change.
type writer struct {
	fd  int
	seq uint32
	// out is the index of the interface of all routes.
	out int
	// batch has the messages that have not been sent. last is the offset of the last of them, first the sequence number of
	// the first. prefixes has the prefix of each message.
	batch    []byte
	last     int
	first    uint32
	prefixes []netip.Prefix
	// answer is a buffer for the kernel's answers.
	answer []byte
	// sent counts the changes that the kernel has made.
	sent uint64
}

// change is a change of a route.
type change int

const (
	// addRoute adds a route. It fails if there is one.
	addRoute change = iota
	// putRoute adds a route or replaces the one that exists.
	putRoute
	// deleteRoute deletes a route. It fails if there is none.
	deleteRoute
)

// batch is the size of a batch in bytes.
const batch = 96 << 10

// newWriter opens a socket in a namespace, for routes that leave by an interface.
func newWriter(s *load.Netns, out int) (w *writer, err error) {
	w = &writer{fd: -1, out: out, batch: make([]byte, 0, batch+256), answer: make([]byte, 64<<10)}
	err = s.Do(func() error {
		if w.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink for routes: %w", err)
		}
		for _, opt := range []struct{ level, name, value int }{
			{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16 * batch},
			{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1 << 20},
			// The kernel does not repeat requests in its answers.
			{unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1},
		} {
			if err := unix.SetsockoptInt(w.fd, opt.level, opt.name, opt.value); err != nil {
				return fmt.Errorf("prepare netlink for routes (root is needed): %w", err)
			}
		}
		// The kernel needs only milliseconds for a batch.
		if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}); err != nil {
			return fmt.Errorf("prepare netlink for routes: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// change adds a change to the batch, and sends the batch when it is full. A route without a gateway is on-link.
func (w *writer) change(c change, prefix netip.Prefix, gateways ...netip.Addr) error {
	kind, flags := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_REQUEST)
	switch c {
	case addRoute:
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	case putRoute:
		flags |= unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	case deleteRoute:
		kind = unix.RTM_DELROUTE
	}
	family := byte(unix.AF_INET)
	if prefix.Addr().Is6() {
		family = unix.AF_INET6
	}
	if len(w.prefixes) == 0 {
		w.first = w.seq + 1
	}
	w.seq++
	w.prefixes = append(w.prefixes, prefix)
	w.last = len(w.batch)
	b := append(w.batch, make([]byte, unix.SizeofNlMsghdr)...)
	// struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
	b = append(b, family, byte(prefix.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST,
		0, 0, 0, 0)
	b = appendAttribute(b, unix.RTA_DST, prefix.Addr().AsSlice())
	b = w.appendHops(b, gateways)
	w.batch = b
	h := b[w.last:]
	binary.NativeEndian.PutUint32(h[0:], uint32(len(h)))
	binary.NativeEndian.PutUint16(h[4:], kind)
	binary.NativeEndian.PutUint16(h[6:], flags)
	binary.NativeEndian.PutUint32(h[8:], w.seq)
	if len(w.batch) >= batch {
		return w.flush()
	}
	return nil
}

// appendHops appends the next hops of a route.
func (w *writer) appendHops(b []byte, gateways []netip.Addr) []byte {
	out := binary.NativeEndian.AppendUint32(nil, uint32(w.out))
	if len(gateways) < 2 {
		if len(gateways) == 1 && gateways[0].IsValid() {
			b = appendAttribute(b, unix.RTA_GATEWAY, gateways[0].AsSlice())
		}
		return appendAttribute(b, unix.RTA_OIF, out)
	}
	var hops []byte
	for _, g := range gateways {
		// struct rtnexthop: length, flags, weight less 1, index of the interface.
		hops = binary.NativeEndian.AppendUint16(hops, uint16(unix.SizeofRtNexthop+unix.SizeofRtAttr+g.BitLen()/8))
		hops = append(append(hops, 0, 0), out...)
		hops = appendAttribute(hops, unix.RTA_GATEWAY, g.AsSlice())
	}
	return appendAttribute(b, unix.RTA_MULTIPATH, hops)
}

// appendAttribute appends a struct rtattr. The length of value must be a multiple of 4.
func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...)
}

// flush sends the batch and waits until the kernel has made all changes. Changes that it refuses are an error, and the others
// are made.
func (w *writer) flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	h := w.batch[w.last:]
	binary.NativeEndian.PutUint16(h[6:], binary.NativeEndian.Uint16(h[6:])|unix.NLM_F_ACK)
	err := unix.Sendto(w.fd, w.batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err != nil {
		err = fmt.Errorf("send %d changes of routes to the kernel: %w", len(w.prefixes), err)
	} else {
		err = w.readAnswers()
	}
	w.batch, w.prefixes = w.batch[:0], w.prefixes[:0]
	return err
}

// readAnswers reads answers up to that of the last message. Other messages have an answer only if they failed.
func (w *writer) readAnswers() error {
	var failed int
	var first error
	for {
		n, _, err := unix.Recvfrom(w.fd, w.answer, 0)
		if err != nil {
			return fmt.Errorf("read the kernel's answers to changes of routes: %w", err)
		}
		for b := w.answer[:n]; len(b) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr+4 || size > len(b) {
				return fmt.Errorf("read the kernel's answers to changes of routes: a message of %d bytes in %d", size, len(b))
			}
			kind, seq := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:])
			errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:]))
			b = b[min(len(b), (size+3)&^3):]
			at := int(seq - w.first)
			if kind != unix.NLMSG_ERROR || at < 0 || at >= len(w.prefixes) {
				continue
			}
			if errno != 0 {
				failed++
				if first == nil {
					first = fmt.Errorf("%s: %w", w.prefixes[at], unix.Errno(errno))
				}
			}
			if at < len(w.prefixes)-1 {
				continue
			}
			w.sent += uint64(len(w.prefixes) - failed)
			if failed > 0 {
				return fmt.Errorf("change routes: the kernel refused %d of %d, the first %w", failed, len(w.prefixes), first)
			}
			return nil
		}
	}
}

// Close closes the socket. Changes that have not been flushed are not made.
func (w *writer) Close() error {
	if w.fd < 0 {
		return nil
	}
	return unix.Close(w.fd)
}
