// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/pins"
)

const (
	// gcPause is the time between two slices of the flow table, gcSlices the number of slices. One pass over the table
	// takes ten minutes. Together with the longest idle time that is far below the 19.5 hours in which its times wrap.
	gcPause  = time.Second
	gcSlices = 600
	// gcBatch is the largest number of buckets in one run of the program, in which the CPU receives no packets.
	gcBatch = 1024
)

// GC frees expired entries of the flow table, one slice every second. Without it an entry would look alive again once
// the times of the table wrap, after 19.5 hours.
type GC struct {
	inst *datapath.Instance // names the data plane; another process may attach a newer one under this name

	running ebpf.ProgramID // the program on the interfaces when prog was loaded
	loaded  ebpf.ProgramID // the pipeline that has prog's flow table, 0 for none
	prog    *ebpf.Program  // nil for none
	buckets uint32
	next    uint32 // the first bucket of the next slice
	last    time.Time
	failed  error // of the last slice
}

// NewGC returns a GC for the data plane of an instance. Its first Step loads the program.
func NewGC(i *datapath.Instance) *GC { return &GC{inst: i} }

// Step frees the expired entries of one slice of the flow table that is in use. Call it at least once a second. A call
// before the next slice is due returns the error of the last one. Step does nothing while nothing is attached or the load
// balancer is off.
func (g *GC) Step() error {
	if time.Since(g.last) < gcPause {
		return g.failed
	}
	g.last = time.Now()
	g.failed = g.follow()
	if g.failed == nil && g.prog != nil {
		_, g.failed = g.collect((g.buckets + gcSlices - 1) / gcSlices)
	}
	if g.failed != nil {
		g.failed = fmt.Errorf("freeing dead flows of %s: %w", g.inst.Name(), g.failed)
	}
	return g.failed
}

// follow loads the program again if another process has replaced the data plane.
func (g *GC) follow() error {
	if g.inst.Temporary() {
		return g.load(g.inst) // no other process can replace it
	}
	running := g.inst.RunningProgram()
	switch {
	case running == 0: // detached
		g.Close()
		return nil
	case running == g.running:
		return nil
	}
	now, err := g.inst.Now()
	if bpfobj.NotExist(err) {
		return nil // detached meanwhile
	}
	if err != nil {
		return err
	}
	defer now.Close()
	if err := g.load(now); err != nil {
		return err
	}
	g.running = running
	return nil
}

// load loads prog for the flow table of an instance.
func (g *GC) load(i *datapath.Instance) error {
	id := pins.ProgramID(i.Program())
	if id == g.loaded && id != 0 {
		return nil // only the filter in front of the pipeline was replaced
	}
	g.Close()
	if OptionsOf(i) == nil {
		return nil
	}
	spec, err := bpfobj.LoadGC()
	if err != nil {
		return err
	}
	if err := spec.Variables[bpfobj.GCVarLbIdle].Set(OptionsOf(i).gcIdle()); err != nil {
		return fmt.Errorf("setting %s: %w", bpfobj.GCVarLbIdle, err)
	}
	flows := i.Map(bpfobj.PipelineMapLbFlows)
	spec.Maps[bpfobj.GCMapLbFlows].MaxEntries = flows.MaxEntries()
	var loaded bpfobj.GCPrograms // the program uses no other maps, so none is created
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.GCMapLbFlows: flows},
	})
	if err != nil {
		return bpfobj.LoadError(err)
	}
	g.prog, g.loaded, g.buckets, g.next = loaded.LbGc, id, flows.MaxEntries(), 0
	return nil
}

// gcIdle returns after how many ticks entries are freed, by state. An entry that a FIN or RST has closed stays as long as
// an open one: the segment may have been forged, and then the flow resumes (lb_tcp_resumes in bpf/lb/assign.h).
func (o *Options) gcIdle() [4]uint16 {
	const open, closing = bpfobj.PipelineLbFlowStateLB_FLOW_OPEN, bpfobj.PipelineLbFlowStateLB_FLOW_CLOSING
	ticks := o.idle()
	ticks[closing] = max(ticks[closing], ticks[open])
	return ticks
}

// gcRange is struct lb_gc_range of bpf/lb/gc.bpf.c.
type gcRange struct{ first, count uint32 }

func (r gcRange) bytes() []byte {
	b := make([]byte, 16)
	bpfobj.Native.PutUint32(b, r.first)
	bpfobj.Native.PutUint32(b[4:], r.count)
	return b
}

// collect works on the next count buckets, or on those that are left in this pass. It returns the number of entries freed.
func (g *GC) collect(count uint32) (freed uint64, err error) {
	end := min(g.next+count, g.buckets)
	for g.next < end {
		r := gcRange{first: g.next, count: min(end-g.next, gcBatch)}
		n, err := g.prog.Run(&ebpf.RunOptions{Data: r.bytes()})
		if err != nil {
			return freed, err
		}
		freed += uint64(n)
		g.next += r.count
	}
	if g.next == g.buckets {
		g.next = 0
	}
	return freed, nil
}

// Close unloads the program. A later Step loads it again.
func (g *GC) Close() {
	if g.prog != nil {
		g.prog.Close()
	}
	g.prog, g.loaded, g.running = nil, 0, 0
}
