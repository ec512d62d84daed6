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
	// gcPause is how long a GC waits between two slices, and gcSlices how many of them the flow table is: it
	// takes ten minutes. The longest idle time and that are far less than what times in the table go round in.
	gcPause  = time.Second
	gcSlices = 600
	// gcBatch bounds how many buckets are swept without a pause in which packets may come in on the CPU.
	gcBatch = 1024
)

// GC frees entries of the flow table whose time is over, some every second. Without it they count as alive
// again when times of the table have gone round, after 19.5 hours.
type GC struct {
	inst *datapath.Instance // whose data plane is swept: that of its name

	running ebpf.ProgramID // on the interfaces when prog was loaded
	loaded  ebpf.ProgramID // the pipeline whose flow table prog sweeps, 0 for none
	prog    *ebpf.Program  // nil for none
	buckets uint32
	next    uint32 // bucket
	last    time.Time
	failed  error // of the last slice
}

// NewGC returns one that begins with its first Step.
func NewGC(i *datapath.Instance) *GC { return &GC{inst: i} }

// Step sweeps a slice of the flow table that is in force, if one is due: call it once a second or more often. With
// nothing attached, or without the load balancer, it does nothing. Before the next slice is due it returns what the last
// one has.
func (s *GC) Step() error {
	if time.Since(s.last) < gcPause {
		return s.failed
	}
	s.last = time.Now()
	s.failed = s.follow()
	if s.failed == nil && s.prog != nil {
		_, s.failed = s.collect((s.buckets + gcSlices - 1) / gcSlices)
	}
	if s.failed != nil {
		s.failed = fmt.Errorf("sweeping the flow table of %s: %w", s.inst.Name(), s.failed)
	}
	return s.failed
}

// follow sees that prog is for the data plane that is in force: another process may have exchanged it.
func (s *GC) follow() error {
	if s.inst.Temporary() {
		return s.load(s.inst) // nobody else can
	}
	running := s.inst.RunningProgram()
	switch {
	case running == 0: // detached, perhaps for good
		s.Close()
		return nil
	case running == s.running:
		return nil
	}
	now, err := s.inst.Now()
	if bpfobj.NotExist(err) {
		return nil // it has just been detached
	}
	if err != nil {
		return err
	}
	defer now.Close()
	if err := s.load(now); err != nil {
		return err
	}
	s.running = running
	return nil
}

// load makes prog one for the flow table of an instance.
func (s *GC) load(i *datapath.Instance) error {
	id := pins.ProgramID(i.Program())
	if id == s.loaded && id != 0 {
		return nil // the filter in front of it was exchanged
	}
	s.Close()
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
	var loaded bpfobj.GCPrograms // the other maps of the object are the stage's, and are not made
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.GCMapLbFlows: flows},
	})
	if err != nil {
		return bpfobj.LoadError(err)
	}
	s.prog, s.loaded, s.buckets, s.next = loaded.LbGc, id, flows.MaxEntries(), 0
	return nil
}

// gcIdle returns how old entries must be to be freed, by state, in ticks. One that FIN or RST has ended may still go on
// for as long as an open one (lb_resumes in bpf/lb/assign.h).
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

// sweep sweeps so many buckets, or as many as there are before the end, and returns how many entries it has freed.
func (s *GC) collect(count uint32) (freed uint64, err error) {
	end := min(s.next+count, s.buckets)
	for s.next < end {
		r := gcRange{first: s.next, count: min(end-s.next, gcBatch)}
		n, err := s.prog.Run(&ebpf.RunOptions{Data: r.bytes()})
		if err != nil {
			return freed, err
		}
		freed += uint64(n)
		s.next += r.count
	}
	if s.next == s.buckets {
		s.next = 0
	}
	return freed, nil
}

// Close lets go of what the sweeper has loaded. A later Step loads it again.
func (s *GC) Close() {
	if s.prog != nil {
		s.prog.Close()
	}
	s.prog, s.loaded, s.running = nil, 0, 0
}
