// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// SocketGuard is the filter on the slow path's UDP sockets. It accepts datagrams of a socket's link by the interfaces that
// SetLinkAccept sets, and none from a service of the AS. The sockets keep it after Close.
type SocketGuard struct {
	prog *ebpf.Program
	maps map[string]*ebpf.Map

	mu     sync.Mutex
	accept []Accept
}

// SocketDrops counts the datagrams of one link that the filter has dropped.
type SocketDrops struct {
	// Interface counts those by a wrong interface, Service those with a service as source, and BFD the BFD packets with a
	// TTL below the minimum.
	Interface, Service, BFD uint64
}

// NewSocketGuard loads a filter for the links of c, which accepts no datagrams yet. Without the privilege to load it the
// error is os.ErrPermission.
func NewSocketGuard(c Config) (*SocketGuard, error) {
	spec, err := bpfobj.LoadSocket()
	if err != nil {
		return nil, err
	}
	n := uint32(len(c.Links))
	for _, name := range []string{bpfobj.SocketMapSocketExcept, bpfobj.SocketMapSocketDropped} {
		spec.Maps[name].MaxEntries = n
	}
	if err := spec.Variables[bpfobj.SocketVarSocketLocalIa].Set(bits.ReverseBytes64(c.LocalIA)); err != nil {
		return nil, err
	}
	if err := spec.Variables[bpfobj.SocketVarSocketBfdMinTtl].Set(c.BFDMinTTL); err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("loading the filter of the slow path's sockets: %w", err)
	}
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer coll.Close()
	g := &SocketGuard{prog: coll.DetachProgram(bpfobj.SocketProgSocketGuard), maps: make(map[string]*ebpf.Map),
		accept: make([]Accept, n)}
	for name := range coll.Maps {
		g.maps[name] = coll.DetachMap(name)
	}
	return g, nil
}

// Close closes the filter. It stays on the sockets.
func (g *SocketGuard) Close() {
	g.prog.Close()
	for _, m := range g.maps {
		m.Close()
	}
}

// Add puts the filter on the socket of a link, and discards what the socket has received without it.
func (g *SocketGuard) Add(fd, link int) error {
	if err := g.Expect(fd, link); err != nil {
		return err
	}
	if err := g.Attach(fd); err != nil {
		return err
	}
	return drain(fd)
}

// Expect makes the filter ready for the socket of a link, which Attach puts it on.
func (g *SocketGuard) Expect(fd, link int) error {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return fmt.Errorf("asking for the cookie of a socket: %w", err)
	}
	if err := g.maps[bpfobj.SocketMapSocketLinks].Put(cookie, uint32(link)); err != nil {
		return fmt.Errorf("writing the socket of link %d: %w", link, err)
	}
	return nil
}

// Attach puts the filter on a socket that it expects, in the place of another filter.
func (g *SocketGuard) Attach(fd int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, g.prog.FD()); err != nil {
		return fmt.Errorf("putting a filter on a socket of the slow path: %w", err)
	}
	return nil
}

// drain discards the datagrams that a socket has received. The filter lets no new ones in meanwhile, so it ends.
func drain(fd int) error {
	// An error is about a datagram that the socket has sent before, and each is returned once.
	const mostErrors = 100
	for failed := 0; failed < mostErrors; {
		_, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			failed++
		}
	}
	return errors.New("a socket of the slow path has nothing but errors")
}

// SetLinkAccept sets the devices by which datagrams of a link are accepted.
func (g *SocketGuard) SetLinkAccept(link int, a Accept) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var except uint32
	if a.Except {
		except = 1
	}
	key := func(index int) bpfobj.SocketSocketDevice {
		return bpfobj.SocketSocketDevice{Link: uint32(link), Ifindex: uint32(index)}
	}
	// New devices are added before old ones are deleted, so that a device in both lists is in the map all the time.
	keep := make(map[int]bool)
	for _, index := range a.Devices {
		keep[index] = true
		if err := g.maps[bpfobj.SocketMapSocketDevices].Put(key(index), uint8(1)); err != nil {
			return fmt.Errorf("writing the interfaces of the sockets of link %d: %w", link, err)
		}
	}
	if err := g.maps[bpfobj.SocketMapSocketExcept].Put(uint32(link), except); err != nil {
		return fmt.Errorf("writing the rule of the sockets of link %d: %w", link, err)
	}
	for _, index := range g.accept[link].Devices {
		if keep[index] {
			continue
		}
		if err := g.maps[bpfobj.SocketMapSocketDevices].Delete(key(index)); err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("deleting an interface of the sockets of link %d: %w", link, err)
		}
	}
	g.accept[link] = a
	return nil
}

// Drops returns the drops of each link.
func (g *SocketGuard) Drops() ([]SocketDrops, error) {
	drops := make([]SocketDrops, len(g.accept))
	for link := range drops {
		var perCPU []bpfobj.SocketSocketDrops
		if err := g.maps[bpfobj.SocketMapSocketDropped].Lookup(uint32(link), &perCPU); err != nil {
			return nil, fmt.Errorf("reading what the sockets of link %d have dropped: %w", link, err)
		}
		for _, c := range perCPU {
			drops[link].Interface += c.Interface
			drops[link].Service += c.Service
			drops[link].BFD += c.Bfd
		}
	}
	return drops, nil
}
