// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// End is one end of a wire: a veth device in a namespace.
type End struct {
	Netns *Netns
	Name  string
	Index int
	MAC   net.HardwareAddr
}

// EndStats are the kernel's counters of a veth, in packets since it was made.
type EndStats struct {
	// Received counts packets that arrived.
	Received uint64
	// OwnDropped counts packets that arrived and that this end could not handle: failed redirects, no memory.
	OwnDropped uint64
	// SendDropped counts packets that the far end refused because its queue was full, or because they were longer than its
	// MTU. If several CPUs send into one queue from XDP programs, the kernel counts too few; Refusals counts all.
	SendDropped uint64
	// StackDropped counts those of SendDropped that the stack sent. It is exact.
	StackDropped uint64
}

// NewWire connects two namespaces with a veth pair and sets both ends up. The namespaces may be the same. The MTU is in
// bytes of the IP packet, 0 for 1500.
func NewWire(a, b *Netns, nameA, nameB string, mtu int) (endA, endB End, err error) {
	return NewQueuedWire(a, b, nameA, nameB, mtu, 0)
}

// NewQueuedWire is NewWire with the given number of queues at each end, 0 for one. The queue of a packet that an XDP program
// sends follows from the number of the CPU, and the same CPU receives it.
func NewQueuedWire(a, b *Netns, nameA, nameB string, mtu, queues int) (endA, endB End, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = nameA
	attrs.MTU = mtu
	attrs.NumTxQueues, attrs.NumRxQueues = queues, queues
	if mtu == 0 {
		attrs.MTU = 1500
	}
	veth := &netlink.Veth{
		LinkAttrs:     attrs,
		PeerName:      nameB,
		PeerMTU:       uint32(attrs.MTU),
		PeerNamespace: netlink.NsFd(b.FD()),
	}
	if err := a.nl.LinkAdd(veth); err != nil {
		return End{}, End{}, fmt.Errorf("make the veth pair %s and %s: %w", nameA, nameB, err)
	}
	if endA, err = openEnd(a, nameA); err != nil {
		return End{}, End{}, errors.Join(err, a.nl.LinkDel(veth))
	}
	if endB, err = openEnd(b, nameB); err != nil {
		return End{}, End{}, errors.Join(err, a.nl.LinkDel(veth))
	}
	for _, e := range []End{endA, endB} {
		if err := e.waitUp(); err != nil {
			return End{}, End{}, errors.Join(err, a.nl.LinkDel(veth))
		}
	}
	return endA, endB, nil
}

// waitUp waits until the kernel considers the device operational. Before that it loses packets.
func (e End) waitUp() error {
	const limit = 5 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		dev, err := e.Netns.nl.LinkByIndex(e.Index)
		if err != nil {
			return fmt.Errorf("find %s: %w", e.Name, err)
		}
		if dev.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("wait for %s to come up: it has not in %s", e.Name, limit)
}

// openEnd finds a device and sets it up.
func openEnd(s *Netns, name string) (End, error) {
	e, err := FindEnd(s, name)
	if err != nil {
		return End{}, err
	}
	if err := s.nl.LinkSetUp(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: e.Index}}); err != nil {
		return End{}, fmt.Errorf("set %s up: %w", name, err)
	}
	return e, nil
}

// FindEnd finds an existing device.
func FindEnd(s *Netns, name string) (End, error) {
	dev, err := s.nl.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return End{}, fmt.Errorf("find %s: there is no such interface in this network namespace: 'ip -br link' lists those there are", name)
	}
	if err != nil {
		return End{}, fmt.Errorf("find %s: %w", name, err)
	}
	return End{Netns: s, Name: name, Index: dev.Attrs().Index, MAC: dev.Attrs().HardwareAddr}, nil
}

// AttachXDP attaches a program in native mode. Closing the link detaches it.
func (e End) AttachXDP(prog *ebpf.Program) (link.Link, error) {
	var l link.Link
	err := e.Netns.Do(func() error {
		var err error
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: e.Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach an XDP program to %s in native mode: %w", e.Name, err)
	}
	return l, nil
}

// Stats reads the device's counters.
func (e End) Stats() (EndStats, error) {
	dev, err := e.Netns.nl.LinkByIndex(e.Index)
	if err != nil {
		return EndStats{}, fmt.Errorf("read the counters of %s: %w", e.Name, err)
	}
	common := dev.Attrs().Statistics
	if common == nil {
		return EndStats{}, fmt.Errorf("read the counters of %s: the kernel gave none", e.Name)
	}
	// The common counters add up the losses of both ends. The driver's counters have them separately, for each queue.
	own := map[string]uint64{}
	err = e.Netns.Do(func() error {
		byQueue, err := netdev.EthtoolStats(e.Name)
		for name, n := range byQueue {
			own[strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(name, "rx_queue_"), "tx_queue_"), "0123456789")] += n
		}
		return err
	})
	if err != nil {
		return EndStats{}, fmt.Errorf("read the driver's counters of %s: %w", e.Name, err)
	}
	byXDP := own["_xdp_xmit_errors"] + own["_xdp_tx_errors"]
	return EndStats{
		Received:     common.RxPackets,
		OwnDropped:   own["_drops"],
		SendDropped:  common.TxDropped,
		StackDropped: common.TxDropped - min(common.TxDropped, byXDP),
	}, nil
}

// Delete removes the wire.
func (e End) Delete() error {
	dev, err := e.Netns.nl.LinkByIndex(e.Index)
	if err != nil {
		return fmt.Errorf("remove %s: %w", e.Name, err)
	}
	return e.Netns.nl.LinkDel(dev)
}
