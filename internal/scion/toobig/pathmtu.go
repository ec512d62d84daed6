// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Overhead returns how many bytes of an IP packet are in front of the SCION packet.
func Overhead(to netip.Addr) int {
	const udp = 8
	if to.Unmap().Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// minimum is the length of a SCION packet that every way takes. Linux does not go below 552 bytes for IPv4 (ip_rt_min_pmtu), nor
// below 1280 for IPv6.
func minimum(to netip.Addr) int {
	if to.Unmap().Is4() {
		return 552 - Overhead(to)
	}
	return 1280 - Overhead(to)
}

const (
	// fresh is how long the length that a way takes is not asked for again. A packet that seems too long has it asked again at once.
	fresh = time.Second
	// mostWays bounds how many ways are known. Anybody can name hosts.
	mostWays = 4096
)

// Prober asks the kernel how long packets may be from one local address. It opens its socket at once, because the network namespace
// of other threads may differ.
type Prober struct {
	fd int

	mu   sync.Mutex
	ways map[netip.AddrPort]way
}

// way is what is known of a way: the longest SCION packet it takes, in bytes, and when that was asked.
type way struct {
	room  int
	asked time.Time
}

// NewProber opens a socket at a local address. Nothing is sent from it, and it receives nothing.
func NewProber(local netip.Addr) (*Prober, error) {
	family := unix.AF_INET6
	if local.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("opening a socket that path MTUs are read from: %w", err)
	}
	p := &Prober{fd: fd, ways: map[netip.AddrPort]way{}}
	err = p.deaf()
	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(local, 0)))
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("opening a socket at %s that path MTUs are read from: %w", local, err)
	}
	return p, nil
}

// deaf has the socket drop everything.
func (p *Prober) deaf() error {
	none, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err != nil {
		return err
	}
	filter := []unix.SockFilter{{Code: none[0].Op, K: none[0].K}}
	return unix.SetsockoptSockFprog(p.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &filter[0]})
}

// Close closes the socket.
func (p *Prober) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
		p.fd = -1
	}
}

// Fits tells whether a SCION packet of a length fits the way to a far end in one IP packet, and else how long one may be. A way that
// the kernel does not know takes everything: sending tells.
func (p *Prober) Fits(length int, to netip.AddrPort) (room int, fits bool) {
	if length <= minimum(to.Addr()) {
		return 0, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if w, ok := p.ways[to]; ok && length <= w.room && now.Sub(w.asked) < fresh {
		return 0, true
	}
	mtu, err := p.pathMTU(to)
	if err != nil {
		return 0, true
	}
	if len(p.ways) == mostWays {
		clear(p.ways)
	}
	w := way{room: mtu - Overhead(to.Addr()), asked: now}
	p.ways[to] = w
	return w.room, length <= w.room
}

// pathMTU returns the MTU of the kernel's route to an address: that of the device, of the route, or one that the kernel has learned.
// Connecting a UDP socket again has the kernel look the route up, and sends nothing.
func (p *Prober) pathMTU(to netip.AddrPort) (int, error) {
	if p.fd < 0 {
		return 0, unix.EBADF
	}
	if err := unix.Connect(p.fd, sockaddr(to)); err != nil {
		return 0, err
	}
	if to.Addr().Unmap().Is4() {
		return unix.GetsockoptInt(p.fd, unix.IPPROTO_IP, unix.IP_MTU)
	}
	return unix.GetsockoptInt(p.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &unix.SockaddrInet4{Addr: ip.As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
