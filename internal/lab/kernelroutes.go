// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelCount is the number of routes in a namespace, from the kernel's statistics. v4 counts the main table, and the local
// table too as long as they share a trie. v6 counts all tables. Differences of the counts are cheap and good enough to follow
// the growth of a table.
type kernelCount struct{ v4, v6 int }

func (l *Lab) kernelCount(ns string) (n kernelCount, err error) {
	err = l.Do(ns, func() error {
		// /proc/net would show the namespace of the process's first thread.
		trie, err := os.ReadFile("/proc/thread-self/net/fib_triestat")
		if err != nil {
			return fmt.Errorf("count the routes of %s: %w", ns, err)
		}
		if n.v4, err = mainTablePrefixes(string(trie)); err != nil {
			return fmt.Errorf("count the routes of %s: %w", ns, err)
		}
		stats, err := os.ReadFile("/proc/thread-self/net/rt6_stats")
		if err != nil {
			return fmt.Errorf("count the routes of %s: %w", ns, err)
		}
		// The fourth hexadecimal number counts the entries of all tables.
		fields := bytes.Fields(stats)
		if len(fields) < 4 {
			return fmt.Errorf("count the routes of %s: rt6_stats has %q", ns, stats)
		}
		v6, err := strconv.ParseUint(string(fields[3]), 16, 32)
		n.v6 = int(v6)
		return err
	})
	return n, err
}

// mainTablePrefixes returns the number of prefixes of the main table in a text of fib_triestat.
func mainTablePrefixes(text string) (int, error) {
	_, main, ok := strings.Cut(text, "Main:")
	if !ok {
		return 0, nil // the kernel makes the table with its first route
	}
	_, number, _ := strings.Cut(main, "Prefixes:")
	fields := strings.Fields(number)
	if len(fields) == 0 {
		return 0, fmt.Errorf("fib_triestat has no number of prefixes")
	}
	return strconv.Atoi(fields[0])
}

// countRoutes returns the number of routes of one protocol (rtnetlink(7)) in all tables of a family, in the calling thread's
// namespace. It does not keep the routes, of which there may be a million. The number is approximate while the tables change.
func countRoutes(family int, protocol uint8) (int, error) {
	n, err := dumpRoutes(family, protocol)
	if err != nil {
		return 0, fmt.Errorf("count the kernel's routes: %w", err)
	}
	return n, nil
}

func dumpRoutes(family int, protocol uint8) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	// With this option the kernel leaves out routes of other protocols, and exceptions to routes.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return 0, err
	}
	var request struct {
		unix.NlMsghdr
		unix.RtMsg
	}
	request.Len = uint32(unsafe.Sizeof(request))
	request.NlMsghdr.Type, request.NlMsghdr.Flags = unix.RTM_GETROUTE, unix.NLM_F_REQUEST|unix.NLM_F_DUMP
	request.Family, request.Protocol = uint8(family), protocol
	message := unsafe.Slice((*byte)(unsafe.Pointer(&request)), request.Len)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	count := 0
	buf := make([]byte, 1<<17)
	for {
		size, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return 0, err
		}
		for b := buf[:size]; len(b) >= unix.SizeofNlMsghdr; {
			h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
			if h.Len < unix.SizeofNlMsghdr || int(h.Len) > len(b) {
				return 0, fmt.Errorf("a message of %d bytes in %d", h.Len, len(b))
			}
			switch h.Type {
			case unix.NLMSG_DONE:
				return count, nil
			case unix.NLMSG_ERROR:
				return 0, unix.Errno(-*(*int32)(unsafe.Pointer(&b[unix.SizeofNlMsghdr])))
			}
			// The protocol is the sixth byte of struct rtmsg.
			if h.Type == unix.RTM_NEWROUTE && b[unix.SizeofNlMsghdr+5] == protocol {
				count++
			}
			b = b[min(int(h.Len+3)&^3, len(b)):]
		}
	}
}
