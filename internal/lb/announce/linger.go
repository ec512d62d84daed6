// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// connections returns the TCP connections to the neighbor, those of other processes too.
func (x *session) connections() (all []*netlink.Socket, err error) {
	family := uint8(unix.AF_INET6)
	if x.Address.Is4() {
		family = unix.AF_INET
	}
	sockets, err := netlink.SocketDiagTCP(family)
	if err != nil {
		return nil, err
	}
	for _, s := range sockets {
		to, _ := netip.AddrFromSlice(s.ID.Destination)
		if to.Unmap() == x.Address.WithZone("") && s.ID.DestinationPort == bgp.BGP_PORT {
			all = append(all, s)
		}
	}
	return all, nil
}

// hold returns this process's connections to the neighbor. They stay open when gobgp closes them.
func (x *session) hold() (held []*net.TCPConn) {
	sockets, err := x.connections()
	if err != nil {
		return nil // a kernel without inet_diag cannot report them
	}
	wanted := make(map[string]bool)
	for _, s := range sockets {
		wanted[fmt.Sprintf("socket:[%d]", s.INode)] = true
	}
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		link, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err != nil || !wanted[link] {
			continue
		}
		if c := x.duplicate(f.Name()); c != nil {
			held = append(held, c)
		}
	}
	return held
}

// duplicate returns another handle of the connection with a file descriptor, nil if the descriptor is another file's by now.
func (x *session) duplicate(descriptor string) *net.TCPConn {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return nil
	}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(again), "BGP session")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil
	}
	to, ok := tcp.RemoteAddr().(*net.TCPAddr)
	if !ok || to.AddrPort().Addr().Unmap().WithZone("") != x.Address.WithZone("") || to.Port != bgp.BGP_PORT {
		tcp.Close()
		return nil
	}
	return tcp
}

// linger ends what this side sends on connections that gobgp has closed, and reads until the neighbor has closed its side too, which it
// does once it has read everything. A connection that is closed at once answers what the neighbor still sends with a reset, and a
// neighbor that cannot write may leave unread what has come before. linger returns whether all was read before end.
func linger(connections []*net.TCPConn, end time.Time) (read bool) {
	read = true
	for _, c := range connections {
		_ = c.CloseWrite() // it fails for a connection that has been reset
		_ = c.SetReadDeadline(end)
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			read = false
		}
		_ = c.Close()
	}
	return read
}
