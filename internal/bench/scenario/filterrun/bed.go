// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

// bed is a host with a packet filter, in a namespace of its own, and the source of a flood in another.
type bed struct {
	peer  packetFilter
	rules ruleSet

	tester, under *load.Netns
	// path has only Source and In.
	path      peer.Path
	installed bool
	// install is how long the filter took to install its rules.
	install time.Duration
	// socket receives UDP packets and discards them. The kernel counts them as errors.
	socket  int
	refused *load.Refusals
	// users is the number of calls of use without a release.
	users int
}

// newBed makes a bed. The first call of use builds it.
func newBed(peer packetFilter, rules ruleSet) *bed {
	return &bed{peer: peer, rules: rules, socket: -1}
}

// use builds the bed and installs the rules, unless that has been done. The caller must call release, also after an error.
func (b *bed) use(ctx context.Context) error {
	b.users++
	if b.users > 1 {
		return nil
	}
	if err := b.build(); err != nil {
		return err
	}
	start := time.Now()
	b.installed = true
	if err := b.peer.Install(ctx, b.path.In, b.rules); err != nil {
		return fmt.Errorf("install the rules: %w", err)
	}
	b.install = time.Since(start)
	return nil
}

// build makes both namespaces, the wire between them and the socket.
func (b *bed) build() (err error) {
	p := &b.path
	for _, step := range []func() error{
		func() error { b.tester, err = load.NewNetns(); return err },
		func() error { b.under, err = load.NewNetns(); return err },
		b.wire,
		func() error { return p.In.Assign(netip.PrefixFrom(host, subnet.Bits())) },
		func() error { return p.Source.Assign(netip.PrefixFrom(client, subnet.Bits())) },
		func() error { return p.In.SetNeighbor(client, p.Source.MAC) },
		func() error { return p.Source.SetNeighbor(host, p.In.MAC) },
		func() error { return b.under.Do(b.openSocket) },
		func() error { b.refused, err = load.WatchRefusals(p.Source); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// wire connects the namespaces. The names of the devices are unique on the machine, as load.ReceiveOn requires.
func (b *bed) wire() error {
	inode, err := b.under.Inode()
	if err != nil {
		return err
	}
	b.path.Source, b.path.In, err = load.NewWire(b.tester, b.under, fmt.Sprintf("cvout%d", inode), fmt.Sprintf("cvin%d", inode), 0)
	return err
}

// openSocket turns source validation off and opens the socket, on a thread in the host's namespace.
func (b *bed) openSocket() (err error) {
	for _, dev := range []string{"all", "default", b.path.In.Name} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"), 0); err != nil {
			return fmt.Errorf("turn source validation off: %w", err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket that takes packets: %w", err)
	}
	b.socket = fd
	// One instruction of classic BPF: return 0, which drops the packet.
	discard := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &discard[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: load.DiscardPort})
	}
	if err != nil {
		return fmt.Errorf("make a socket that takes packets: %w", err)
	}
	return nil
}

// passed is the number of packets that the filter let through to the socket.
func (b *bed) passed() (n uint64, err error) {
	err = b.under.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return fmt.Errorf("count the packets that the filter let through: %w", err)
		}
		n = peer.ParseSNMP(string(text))["Udp:InErrors"]
		return nil
	})
	return n, err
}

// count has the counters of packets since the bed was built. lost has the keys of scenario.Sample.Lost.
type count struct {
	dropped, passed uint64
	lost            map[string]uint64
}

// count reads all counters.
func (b *bed) count(ctx context.Context) (c count, err error) {
	if c.dropped, err = b.peer.Dropped(ctx); err != nil {
		return c, err
	}
	if c.passed, err = b.passed(); err != nil {
		return c, err
	}
	refused, err := b.refused.Of(0)
	if err != nil {
		return c, err
	}
	in, err := b.path.In.Stats()
	c.lost = map[string]uint64{scenario.LostToDevice: refused, scenario.LostAtDevice: in.OwnDropped}
	return c, err
}

// release ends a use. After the last one it removes the bed.
func (b *bed) release() error {
	if b.users--; b.users > 0 {
		return nil
	}
	return b.close()
}

// close removes filter, socket and namespaces.
func (b *bed) close() error {
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
	for _, s := range []*load.Netns{b.tester, b.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	b.tester, b.under = nil, nil
	return err
}
