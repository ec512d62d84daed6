// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Host is what the kernel knows of a packet's way, and of interfaces. The answers are kept for a while, so that samples cost little.
type Host struct {
	handle *netlink.Handle

	neighbors map[[6]byte][]neighbor
	read      time.Time // when neighbors was read
	bits      map[netip.Addr]uint32
	begun     time.Time // when bits was emptied
}

type neighbor struct {
	index int
	addr  netip.Addr
}

// How long answers are kept, and how many.
const (
	neighborsFor = 2 * time.Second
	bitsFor      = 10 * time.Second
	maxBits      = 1 << 16
)

// OpenHost opens a socket in the network namespace of the calling thread.
func OpenHost() (*Host, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("asking the kernel for neighbors and interfaces: %w", err)
	}
	return &Host{handle: h}, nil
}

// Close closes the socket.
func (h *Host) Close() { h.handle.Close() }

// Router returns how a packet was routed that came in and was sent by the interface index, nil if the neighbor that it was sent to is not
// known. The next hop is that neighbor: its address is known by its MAC address.
func (h *Host) Router(in, sent Frame, index uint32, now time.Time) *Router {
	if !sent.To.IsValid() || !in.From.IsValid() {
		return nil
	}
	hop, ok := h.neighbor(sent, int(index), now)
	if !ok {
		return nil
	}
	return &Router{NextHop: hop, SourceBits: h.prefix(in.From, now), DestinationBits: h.prefix(sent.To, now)}
}

func (h *Host) neighbor(sent Frame, index int, now time.Time) (netip.Addr, bool) {
	if now.Sub(h.read) > neighborsFor {
		h.readNeighbors(now)
	}
	var here, elsewhere []netip.Addr // elsewhere: on a VLAN device above the interface
	for _, n := range h.neighbors[sent.Destination] {
		switch {
		case n.addr.Is4() != sent.To.Is4():
		case n.index == index && !sent.Tagged:
			here = append(here, n.addr)
		default:
			elsewhere = append(elsewhere, n.addr)
		}
	}
	if len(here) == 0 {
		here = elsewhere
	}
	switch {
	case len(here) == 0:
		return netip.Addr{}, false
	case len(here) == 1:
		return here[0], true
	case slices.Contains(here, sent.To):
		return sent.To, true
	}
	if routes, err := h.handle.RouteGet(sent.To.AsSlice()); err == nil && len(routes) > 0 {
		if gw, ok := netip.AddrFromSlice(routes[0].Gw); ok && slices.Contains(here, gw.Unmap()) {
			return gw.Unmap(), true
		}
	}
	return slices.MinFunc(here, netip.Addr.Compare), true
}

func (h *Host) readNeighbors(now time.Time) {
	h.read, h.neighbors = now, make(map[[6]byte][]neighbor)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		all, err := h.handle.NeighList(0, family)
		if err != nil {
			continue // samples have no next hop then
		}
		for _, n := range all {
			addr, ok := netip.AddrFromSlice(n.IP)
			if ok && len(n.HardwareAddr) == 6 {
				mac := [6]byte(n.HardwareAddr)
				h.neighbors[mac] = append(h.neighbors[mac], neighbor{n.LinkIndex, addr.Unmap()})
			}
		}
	}
}

// prefix returns the length of the prefix of the route to an address, 0 for the default route or none.
func (h *Host) prefix(addr netip.Addr, now time.Time) uint32 {
	if now.Sub(h.begun) > bitsFor || len(h.bits) >= maxBits {
		h.begun, h.bits = now, make(map[netip.Addr]uint32)
	}
	if n, ok := h.bits[addr]; ok {
		return n
	}
	n := uint32(0)
	routes, err := h.handle.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && len(routes) > 0 && routes[0].Dst != nil {
		ones, _ := routes[0].Dst.Mask.Size()
		n = uint32(ones)
	}
	h.bits[addr] = n
	return n
}

// ethernet is the type of an interface in its counters (ethernetCsmacd of IANA's ifType).
const ethernet = 6

// Interface reads the counters of an interface.
func (h *Host) Interface(index int) (*Interface, error) {
	l, err := h.handle.LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	a := l.Attrs()
	i := &Interface{Index: uint32(index), Type: ethernet, Promiscuous: a.Promisc > 0}
	i.AdminUp = a.RawFlags&unix.IFF_UP != 0
	i.Up = i.AdminUp && (a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown && a.RawFlags&unix.IFF_LOWER_UP != 0)
	if n, err := strconv.ParseInt(readLine("/sys/class/net/"+a.Name+"/speed"), 10, 64); err == nil && n > 0 {
		i.Speed = uint64(n) * 1_000_000
	}
	switch readLine("/sys/class/net/" + a.Name + "/duplex") {
	case "full":
		i.Duplex = 1
	case "half":
		i.Duplex = 2
	}
	if s := a.Statistics; s != nil {
		i.InBytes, i.OutBytes = s.RxBytes, s.TxBytes
		i.InPackets, i.InMulticast, i.InDiscards, i.InErrors = uint32(s.RxPackets), uint32(s.Multicast), uint32(s.RxDropped), uint32(s.RxErrors)
		i.OutPackets, i.OutDiscards, i.OutErrors = uint32(s.TxPackets), uint32(s.TxDropped), uint32(s.TxErrors)
	}
	return i, nil
}

func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
