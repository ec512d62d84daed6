// SPDX-License-Identifier: Apache-2.0

// Package peer has the devices under test: culvert and the devices that it is compared with. It also lists their rows in
// scenarios.
package peer

import (
	"context"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
)

// Path is the path of packets through a device under test:
//
//	Source -> In, the device, Out -> Sink
//
// Source and In are the ends of one wire, Out and Sink those of another. Source and Sink are in the tester's namespace, In
// and Out in the device's. Without a device one wire connects Source and Sink, and Sink is in the device's namespace.
type Path struct {
	Source, In, Out, Sink load.End
}

// Device forwards packets from Path.In to Path.Out.
type Device interface {
	// Attach puts the device into the path. Afterwards an XDP program must be on In, because a veth needs one to accept
	// packets (see load.Listen). The caller must call Detach, also after an error.
	Attach(ctx context.Context, p Path) error
	// Frames returns the frames to send through the device: its own, or the scenario's common frames with the Ethernet
	// addresses that the device needs. It may be called before Attach.
	Frames(p Path, common [][]byte) ([][]byte, error)
	// Losses counts the packets that the device itself has dropped since Attach, by reason.
	Losses() (map[string]uint64, error)
	// Detach removes what Attach made and what does not disappear with the namespaces.
	Detach() error
}

// Preparer is a Device that keeps a part of itself in place between rounds, while it is detached.
type Preparer interface {
	Device
	// Prepare makes the part that remains. The caller must call Release, also after an error.
	Prepare(ctx context.Context, p Path) error
	// Release removes what Prepare made, after the last Detach.
	Release() error
}

// SingleProgram is a Device that consists of one XDP program, so that the cost of the program can be measured by itself.
type SingleProgram interface {
	Device
	// Program returns the program that Attach put on Path.In, and the verdict that it returns for the device's frames.
	Program() (prog *ebpf.Program, verdict uint32)
}

// Optional is a Device that needs something a machine may lack.
type Optional interface {
	Device
	// Available returns nil if the device can be used. Otherwise the error says what is missing and how to get it.
	Available() error
}
