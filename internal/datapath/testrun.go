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

// TestRun runs one frame through the data plane as if an interface had received it, starting with the programs in front. It
// returns the XDP action and the frame as the programs left it. The frame is counted like any other.
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
		Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(ifindex)},
	}
	if i.temporary {
		action, err = i.Entry().Run(&opts)
		return action, opts.DataOut, err
	}
	i.tested.mu.RLock()
	for i.tested.id == 0 || pins.ProgramAt(i.tested.link) != i.tested.id {
		i.tested.mu.RUnlock()
		cached, err := i.findTested()
		if err != nil {
			return 0, nil, err
		}
		i.tested.mu.RLock()
		if !cached {
			break
		}
	}
	defer i.tested.mu.RUnlock()
	action, err = i.tested.prog.Run(&opts)
	return action, opts.DataOut, err
}

// testedProgram caches the program that TestRun runs. Finding it among the pins takes far longer than running it, and tests
// run hundreds of thousands of frames.
type testedProgram struct {
	mu sync.RWMutex
	// link is the path of a pinned link, and id the program that it ran. As long as it runs that program, prog is the one to
	// run. Id is 0 if no link was on an interface: then the program is looked up for each frame.
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

// findTested looks up the program for TestRun. Cached is false if no link runs it, so that it has to be looked up again.
func (i *Instance) findTested() (cached bool, err error) {
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
