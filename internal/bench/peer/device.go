// SPDX-License-Identifier: Apache-2.0

// Package peer holds what is measured: culvert, what it is compared with, and the rows that they have in scenarios.
package peer

import (
	"context"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
)

// Path is the way of packets through a device under test:
//
//	Source -> In, the device, Out -> Sink
//
// Source and In are the ends of one wire, Out and Sink those of another. Source and Sink are in the tester's
// namespace, In and Out in the device's. Without a device the only wire leads from Source to Sink.
type Path struct {
	Source, In, Out, Sink load.End
}

// Device is something that forwards packets from Path.In to Path.Out.
type Device interface {
	// Attach puts the device into the path. An XDP program must be on In afterwards, because that is what makes a
	// veth take packets (see Listen). Detach is called after it, even when it failed.
	Attach(ctx context.Context, p Path) error
	// Frames gives what to send through the device, which may not be attached yet: its own frames, or the
	// scenario's common ones with the Ethernet addresses that it needs.
	Frames(p Path, common [][]byte) ([][]byte, error)
	// Losses counts the packets that the device itself dropped since Attach, by reason.
	Losses() (map[string]uint64, error)
	// Detach removes all that Attach made and that closing the namespaces does not.
	Detach() error
}

// Standing is a Device with a part that stays in the path when the rest is taken out between rounds.
type Preparer interface {
	Device
	// Prepare puts the part that stays into the path. Release is called after it, even when it failed.
	Prepare(ctx context.Context, p Path) error
	// Release removes what Prepare made, after the last Detach.
	Release() error
}

// Costed is a Device that is one XDP program, whose cost can be measured by itself.
type SingleProgram interface {
	Device
	// Program is the program that Attach put on Path.In, and the verdict that it gives to the device's frames.
	Program() (prog *ebpf.Program, verdict uint32)
}

// Optional is a Device that a machine may lack.
type Optional interface {
	Device
	// Available returns an error that says what is missing and how to get it.
	Available() error
}
