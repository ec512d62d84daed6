// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// filterBed is a host with a packet filter, in a namespace of its own, and what floods it in another.
type filterBed struct {
	peer  filterPeer
	rules filterRules

	tester, under *Space
	// path has only Source and In.
	path      Path
	installed bool
	// install is how long the filter took to have its rules in force.
	install time.Duration
	// socket takes UDP packets and throws them away. The kernel counts them as errors.
	socket  int
	refused *refusals
	// users are the rows that are set up.
	users int
}

// newFilterBed makes a bed that is laid when the first row needs it.
func newFilterBed(peer filterPeer, rules filterRules) *filterBed {
	return &filterBed{peer: peer, rules: rules, socket: -1}
}

// use lays the bed and installs the rules, if that has not been done. Each use needs a release, also when it failed.
func (b *filterBed) use(ctx context.Context) error {
	b.users++
	if b.users > 1 {
		return nil
	}
	if err := b.lay(); err != nil {
		return err
	}
	start := time.Now()
	b.installed = true
	if err := b.peer.Install(ctx, b.path.In, b.rules); err != nil {
		return fmt.Errorf("put the rules in force: %w", err)
	}
	b.install = time.Since(start)
	return nil
}

// lay makes both namespaces, the wire between them and the socket.
func (b *filterBed) lay() (err error) {
	p := &b.path
	for _, step := range []func() error{
		func() error { b.tester, err = NewSpace(); return err },
		func() error { b.under, err = NewSpace(); return err },
		b.wire,
		func() error { return p.In.Assign(netip.PrefixFrom(filterHost, filterNet.Bits())) },
		func() error { return p.Source.Assign(netip.PrefixFrom(filterClient, filterNet.Bits())) },
		func() error { return p.In.Neighbour(filterClient, p.Source.MAC) },
		func() error { return p.Source.Neighbour(filterHost, p.In.MAC) },
		func() error { return b.under.Do(b.ready) },
		func() error { b.refused, err = watchRefusals(p.Source); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// wire connects the namespaces. The names tell the threads that receive from those of others (see receiveOn).
func (b *filterBed) wire() error {
	inode, err := b.under.inode()
	if err != nil {
		return err
	}
	b.path.Source, b.path.In, err = NewWire(b.tester, b.under, fmt.Sprintf("cvout%d", inode), fmt.Sprintf("cvin%d", inode), 0)
	return err
}

// ready has the host's kernel take packets from everywhere and those for the socket, on a thread in its namespace.
func (b *filterBed) ready() (err error) {
	for _, dev := range []string{"all", "default", b.path.In.Name} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"), 0); err != nil {
			return fmt.Errorf("take packets whatever their source: %w", err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket that takes packets: %w", err)
	}
	b.socket = fd
	// One instruction of classic BPF: return 0, which is to take nothing of the packet.
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: discardPort})
	}
	if err != nil {
		return fmt.Errorf("make a socket that takes packets: %w", err)
	}
	return nil
}

// passed is how many packets have come through the filter to the socket.
func (b *filterBed) passed() (n uint64, err error) {
	err = b.under.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return fmt.Errorf("count the packets that came through the filter: %w", err)
		}
		n = parseSNMP(string(text))["Udp:InErrors"]
		return nil
	})
	return n, err
}

// filterCount is what has become of packets since the bed was laid.
type filterCount struct {
	dropped, passed uint64
	lost            map[string]uint64
}

// count reads all counters.
func (b *filterBed) count(ctx context.Context) (c filterCount, err error) {
	if c.dropped, err = b.peer.Dropped(ctx); err != nil {
		return c, err
	}
	if c.passed, err = b.passed(); err != nil {
		return c, err
	}
	refused, err := b.refused.of(0)
	if err != nil {
		return c, err
	}
	in, err := b.path.In.Stats()
	c.lost = map[string]uint64{lostToDevice: refused, lostAtDevice: in.OwnDropped}
	return c, err
}

// release removes everything when no row needs it any more.
func (b *filterBed) release() error {
	if b.users--; b.users > 0 {
		return nil
	}
	return b.close()
}

// close removes everything.
func (b *filterBed) close() error {
	var err error
	if b.installed {
		b.installed = false
		err = b.peer.Remove()
	}
	if b.socket > 0 {
		err = errors.Join(err, unix.Close(b.socket))
		b.socket = -1
	}
	err = errors.Join(err, b.refused.Close())
	b.refused = nil
	for _, s := range []*Space{b.tester, b.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	b.tester, b.under = nil, nil
	return err
}
