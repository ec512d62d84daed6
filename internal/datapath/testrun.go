// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"sync"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"

	"github.com/cilium/ebpf"
)

type xdpMD = bpfobj.XDPMD

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
	if i.temporary {
		action, err = i.Entry().Run(&opts)
		return action, opts.DataOut, err
	}
	i.tested.mu.RLock()
	for i.tested.id == 0 || pins.ProgramAt(i.tested.link) != i.tested.id {
		i.tested.mu.RUnlock()
		known, err := i.lookInFront()
		if err != nil {
			return 0, nil, err
		}
		i.tested.mu.RLock()
		if !known {
			break
		}
	}
	defer i.tested.mu.RUnlock()
	action, err = i.tested.prog.Run(&opts)
	return action, opts.DataOut, err
}

// testedProgram is what TestRun ran at last. To look through the pins takes far longer than to run a program, and tests
// do that for hundreds of thousands of frames.
type testedProgram struct {
	mu sync.RWMutex
	// link is the pin of a link that ran the program, and id the program's: as long as they go together, prog is the one
	// to run. Without an ID it has to be looked for each time.
	link string
	id   ebpf.ProgramID
	prog *ebpf.Program
}

func (p *testedProgram) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prog.Close()
	p.prog, p.id = nil, 0
}

// lookInFront finds the program to test. It is not known for longer than once if no link runs it.
func (i *Instance) lookInFront() (known bool, err error) {
	i.tested.mu.Lock()
	defer i.tested.mu.Unlock()
	at, id := pins.RunningAt(i.dir)
	all, done, err := i.readFronts()
	if err != nil {
		return false, err
	}
	defer done()
	prog, err := all.entry(i.prog).Clone()
	if err != nil {
		return false, err
	}
	i.tested.prog.Close()
	i.tested.link, i.tested.id, i.tested.prog = at, id, prog
	return id != 0, nil
}
