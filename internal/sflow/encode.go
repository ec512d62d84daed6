// SPDX-License-Identifier: Apache-2.0

// Package sflow writes sFlow version 5 (sflow.org/sflow_version_5.txt): samples of packets, counters of interfaces, and notifications
// of discarded packets (sflow.org/sflow_drops.txt). It knows no data plane.
package sflow

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// Port is the UDP port that collectors listen on.
const Port = 6343

// MaxDatagram is the most that is put into a datagram, in bytes, so that no network has to fragment it.
const MaxDatagram = 1400

// Formats of samples and records, of enterprise 0.
const (
	formatFlow             = 1
	formatCounters         = 2
	formatFlowExpanded     = 3
	formatCountersExpanded = 4
	formatDiscarded        = 5

	recordHeader   = 1
	recordSwitch   = 1001
	recordRouter   = 1002
	recordFunction = 1038

	recordInterface = 1
)

// How an output interface is written: as one interface, or as the reason for which the packet was discarded.
const (
	outputInterface = 0
	outputDiscarded = 1
	// Internal is the output of a packet to the device itself, and Unknown that of one whose way is not known.
	Internal = 0x3fffffff
	Unknown  = 0

	maxCompactSource = 1<<24 - 1
	maxCompactIndex  = Internal - 1
)

// Packet is a packet of a flow sample or a notification.
type Packet struct {
	// Input is the index of the interface that it came in by. Output is that of the interface that it went out by, Internal or Unknown.
	Input, Output uint32
	// Discarded tells that it was dropped, for Reason.
	Discarded bool
	Reason    Reason
	// Function names culvert's own reason.
	Function string
	// Header has the first bytes of the frame that came in, and Length is how long that was, without the frame check sequence.
	Header []byte
	Length uint32
	// Switch and Router are nil if nothing is known.
	Switch *Switch
	Router *Router
}

// Switch has the VLAN tags of a packet: of the frame that came in and of the one that went out, 0 for none.
type Switch struct{ InVLAN, InPriority, OutVLAN, OutPriority uint32 }

// Router is how a packet was routed.
type Router struct {
	NextHop netip.Addr
	// SourceBits and DestinationBits are the lengths of the prefixes of the routes to source and destination.
	SourceBits, DestinationBits uint32
}

// FlowSample is a sampled packet.
type FlowSample struct {
	Sequence, Rate, Pool, Drops uint32
	Packet                      *Packet
}

// Discard is a notification of a packet that was dropped.
type Discard struct {
	Sequence, Drops uint32
	Packet          *Packet
}

// fcs is the length of a frame check sequence: sFlow counts it, and XDP does not see it.
const fcs = 4

type buffer []byte

func (b *buffer) u32(all ...uint32) {
	for _, n := range all {
		*b = binary.BigEndian.AppendUint32(*b, n)
	}
}

func (b *buffer) u64(n uint64) { *b = binary.BigEndian.AppendUint64(*b, n) }

// opaque writes bytes with their length, padded to a multiple of four.
func (b *buffer) opaque(data []byte) {
	b.u32(uint32(len(data)))
	*b = append(*b, data...)
	*b = append(*b, make([]byte, -len(data)&3)...)
}

func (b *buffer) address(a netip.Addr) {
	a = a.Unmap()
	if a.Is4() {
		b.u32(1)
	} else {
		b.u32(2)
	}
	*b = append(*b, a.AsSlice()...)
}

// block writes a format, and the length of what write writes behind it.
func (b *buffer) block(format uint32, write func()) {
	b.u32(format, 0)
	at := len(*b)
	write()
	binary.BigEndian.PutUint32((*b)[at-4:], uint32(len(*b)-at))
}

// records writes the records of a packet.
func (b *buffer) records(p *Packet, function bool) {
	n := uint32(1)
	for _, more := range []bool{p.Switch != nil, p.Router != nil, function} {
		if more {
			n++
		}
	}
	b.u32(n)
	b.block(recordHeader, func() {
		b.u32(1, p.Length+fcs, fcs) // Ethernet
		b.opaque(p.Header)
	})
	if s := p.Switch; s != nil {
		b.block(recordSwitch, func() { b.u32(s.InVLAN, s.InPriority, s.OutVLAN, s.OutPriority) })
	}
	if r := p.Router; r != nil {
		b.block(recordRouter, func() {
			b.address(r.NextHop)
			b.u32(r.SourceBits, r.DestinationBits)
		})
	}
	if function {
		b.block(recordFunction, func() { b.opaque([]byte(p.Function)) })
	}
}

// Encode returns the sample as part of a datagram. The compact format is used if the interfaces' indexes fit.
func (s *FlowSample) Encode() []byte {
	var b buffer
	p := s.Packet
	format, output := uint32(outputInterface), p.Output
	if p.Discarded {
		format, output = outputDiscarded, uint32(p.Reason)
	}
	if p.Input <= maxCompactSource && (output == Internal || output <= maxCompactIndex) {
		b.block(formatFlow, func() {
			b.u32(s.Sequence, p.Input, s.Rate, s.Pool, s.Drops, p.Input, format<<30|output)
			b.records(p, false)
		})
		return b
	}
	b.block(formatFlowExpanded, func() {
		b.u32(s.Sequence, 0, p.Input, s.Rate, s.Pool, s.Drops, outputInterface, p.Input, format, output)
		b.records(p, false)
	})
	return b
}

// Encode returns the notification as part of a datagram.
func (d *Discard) Encode() []byte {
	var b buffer
	b.block(formatDiscarded, func() {
		b.u32(d.Sequence, 0, d.Packet.Input, d.Drops, d.Packet.Input, Unknown, uint32(d.Packet.Reason))
		b.records(d.Packet, d.Packet.Function != "")
	})
	return b
}

// Interface has the counters of an interface (if_counters). What the kernel does not count is unknown: all bits are set.
type Interface struct {
	Index, Type uint32
	Speed       uint64 // bit/s
	// FullDuplex is 1 for full duplex, 2 for half, 0 if it is not known.
	Duplex      uint32
	AdminUp, Up bool
	Promiscuous bool

	InBytes, OutBytes                            uint64
	InPackets, InMulticast, InDiscards, InErrors uint32
	OutPackets, OutDiscards, OutErrors           uint32
}

const notCounted = ^uint32(0)

// EncodeCounters returns a sample of an interface's counters as part of a datagram.
func EncodeCounters(sequence uint32, i *Interface) []byte {
	var b buffer
	body := func() {
		b.u32(1)
		b.block(recordInterface, func() {
			status, promiscuous := uint32(0), uint32(2)
			if i.AdminUp {
				status |= 1
			}
			if i.Up {
				status |= 2
			}
			if i.Promiscuous {
				promiscuous = 1
			}
			b.u32(i.Index, i.Type)
			b.u64(i.Speed)
			b.u32(i.Duplex, status)
			b.u64(i.InBytes)
			b.u32(i.InPackets-i.InMulticast, i.InMulticast, notCounted, i.InDiscards, i.InErrors, notCounted)
			b.u64(i.OutBytes)
			b.u32(i.OutPackets, notCounted, notCounted, i.OutDiscards, i.OutErrors, promiscuous)
		})
	}
	if i.Index <= maxCompactSource {
		b.block(formatCounters, func() { b.u32(sequence, i.Index); body() })
	} else {
		b.block(formatCountersExpanded, func() { b.u32(sequence, 0, i.Index); body() })
	}
	return b
}

// Agent is who sends datagrams.
type Agent struct {
	Address netip.Addr
	Sub     uint32
}

// Datagram collects samples.
type Datagram struct {
	samples []byte
	n       uint32
}

// headerBytes is the length of the longest header of a datagram.
const headerBytes = 40

// Fits tells whether there is room for a sample. A datagram without samples has room for any.
func (d *Datagram) Fits(sample []byte) bool {
	return d.n == 0 || headerBytes+len(d.samples)+len(sample) <= MaxDatagram
}

// Add adds a sample.
func (d *Datagram) Add(sample []byte) {
	d.samples = append(d.samples, sample...)
	d.n++
}

// Empty tells whether there are no samples.
func (d *Datagram) Empty() bool { return d.n == 0 }

// Encode returns the datagram and empties it. up is how long the agent has been running.
func (d *Datagram) Encode(a Agent, sequence uint32, up time.Duration) []byte {
	b := make(buffer, 0, headerBytes+len(d.samples))
	b.u32(5)
	b.address(a.Address)
	b.u32(a.Sub, sequence, uint32(up.Milliseconds()), d.n)
	b = slices.Concat(b, d.samples)
	d.samples, d.n = d.samples[:0], 0
	return b
}
