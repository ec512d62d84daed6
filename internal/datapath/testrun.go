// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"
)

// xdpMD is struct xdp_md of linux/bpf.h.
type xdpMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// TestRun puts one frame through the program as if it came from an interface, and returns the XDP
// action and the frame as it came out. It counts like any other packet.
func (i *Instance) TestRun(frame []byte, iface string) (action uint32, out []byte, err error) {
	p, err := net.InterfaceByName(iface)
	if err != nil {
		return 0, nil, fmt.Errorf("interface %s: %w", iface, err)
	}
	return i.TestRunIndex(frame, p.Index)
}

// TestRunIndex is TestRun for an interface given by its index.
func (i *Instance) TestRunIndex(frame []byte, ifindex int) (action uint32, out []byte, err error) {
	opts := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+64),
		Context: xdpMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	p, done, err := i.readFilter()
	if err != nil {
		return 0, nil, err
	}
	defer done()
	prog := i.prog
	if p.prog != nil {
		prog = p.prog.prog
	}
	action, err = prog.Run(&opts)
	return action, opts.DataOut, err
}
