// SPDX-License-Identifier: Apache-2.0

// Package procnet reads the kernel's tables of sockets, and finds the processes that hold them.
package procnet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Holder is a process with a socket on an address.
type Holder struct {
	Addr netip.AddrPort
	// PID is 0 if the process cannot be seen: it is in another PID namespace, belongs to another user, or
	// is about to end.
	PID int
	// Name is the process's name as ps shows it, empty if PID is 0.
	Name string
}

// String describes the process in words that fit into a sentence.
func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that cannot be seen from here"
	}
	return fmt.Sprintf("%s (process %d)", h.Name, h.PID)
}

// Socket is a line of a table such as /proc/net/udp.
type Socket struct {
	Inode uint64
	Addr  netip.AddrPort
	// State is the number of the state, as in net/tcp_states.h.
	State uint64
}

// Sockets returns the sockets of a protocol, "udp" or "tcp", of both families in the network namespace of the calling thread.
func Sockets(protocol string) (all []Socket, err error) {
	for _, name := range []string{protocol, protocol + "6"} {
		// /proc/net is that of the process's first thread.
		text, err := os.ReadFile("/proc/thread-self/net/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s sockets: %w", strings.ToUpper(protocol), err)
		}
		all = append(all, parse(string(text))...)
	}
	return all, nil
}

// parse reads the table of /proc/net/udp, udp6, tcp or tcp6.
func parse(text string) (sockets []Socket) {
	const local, state, inode = 1, 3, 9 // columns
	for line := range strings.Lines(text) {
		columns := strings.Fields(line)
		if len(columns) <= inode {
			continue
		}
		at, ok := parseAddress(columns[local])
		n, err := strconv.ParseUint(columns[inode], 10, 64)
		st, err2 := strconv.ParseUint(columns[state], 16, 8)
		if ok && err == nil && err2 == nil {
			sockets = append(sockets, Socket{Inode: n, Addr: at, State: st})
		}
	}
	return sockets
}

// parseAddress reads HEX:PORT, where HEX is the address as 32-bit words in the byte order of the machine.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok && err == nil
}

// Holders looks for sockets, by inode, among the open files of each process. It leaves out sockets of this
// process. A socket of no visible process gets a Holder without PID.
func Holders(inodes map[uint64]netip.AddrPort) []Holder {
	var holders []Holder
	seen := map[uint64]bool{}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		fds, _ := os.ReadDir(process + "/fd")
		for _, fd := range fds {
			target, _ := os.Readlink(process + "/fd/" + fd.Name())
			inode, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]"), 10, 64)
			at, found := inodes[inode]
			if err != nil || !found {
				continue
			}
			seen[inode] = true
			if pid == os.Getpid() {
				continue
			}
			name, _ := os.ReadFile(process + "/comm")
			holders = append(holders, Holder{Addr: at, PID: pid, Name: strings.TrimSpace(string(name))})
		}
	}
	for inode, at := range inodes {
		if !seen[inode] {
			holders = append(holders, Holder{Addr: at})
		}
	}
	return holders
}
