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

// writer changes routes of a namespace in large batches: one system call and one answer for thousands, where a
// library has a call and an answer for each.
type writer struct {
	fd  int
	seq uint32
	// out is the interface that all routes leave by.
	out int
	// batch has messages that are not sent yet, last where the last of them begins; prefixes are those of the messages.
	batch    []byte
	last     int
	first    uint32
	prefixes []netip.Prefix
	answer   []byte
	// sent counts the messages that the kernel has taken.
	sent uint64
}

// change is what to do with a route.
type change int

const (
	// addRoute makes a route that must not be there.
	addRoute change = iota
	// putRoute makes a route or takes the place of the one there.
	putRoute
	// deleteRoute removes one that must be there.
	deleteRoute
)

// batch is how many bytes of messages go to the kernel at once.
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
			// Answers do not repeat what was asked.
			{unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1},
		} {
			if err := unix.SetsockoptInt(w.fd, opt.level, opt.name, opt.value); err != nil {
				return fmt.Errorf("prepare netlink for routes (root is needed): %w", err)
			}
		}
		// A batch takes the kernel milliseconds.
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

// change puts a message into the batch, and sends the batch when it is full. A route without a gateway is on the link.
func (w *writer) change(what change, prefix netip.Prefix, gateway netip.Addr) error {
	kind, flags := uint16(unix.RTM_NEWROUTE), uint16(unix.NLM_F_REQUEST)
	switch what {
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
	if gateway.IsValid() {
		b = appendAttribute(b, unix.RTA_GATEWAY, gateway.AsSlice())
	}
	b = appendAttribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(w.out)))
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

// appendAttribute appends a struct rtattr whose value has a length that is a multiple of 4.
func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...)
}

// flush sends the batch and waits until the kernel has done all of it.
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
		err = w.answers()
	}
	w.batch, w.prefixes = w.batch[:0], w.prefixes[:0]
	return err
}

// answers reads up to the answer to the last message. The others have one only if they failed.
func (w *writer) answers() error {
	var failed int
	var first error
	for {
		n, _, err := unix.Recvfrom(w.fd, w.answer, 0)
		if err != nil {
			return fmt.Errorf("read what the kernel answers to changes of routes: %w", err)
		}
		for b := w.answer[:n]; len(b) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr+4 || size > len(b) {
				return fmt.Errorf("read what the kernel answers to changes of routes: a message of %d bytes in %d", size, len(b))
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

// Close lets go of the socket; what has not been flushed is forgotten.
func (w *writer) Close() error {
	if w.fd < 0 {
		return nil
	}
	return unix.Close(w.fd)
}
