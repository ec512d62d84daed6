// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/bench/scenario/routerun"
	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/stats"
)

// spreadable is a device that can spread packets over workers.
type spreadable interface {
	capturable
	Spread(cpus []int)
}

// spread are the devices whose packets are spread, by the names of their rows.
var spread = []struct {
	name   string
	device func(peer.DeviceOptions) spreadable
}{
	{"route4", func(o peer.DeviceOptions) spreadable { return routerun.Mirror4().Device(o).(spreadable) }},
	{"scion", func(peer.DeviceOptions) spreadable {
		return &peer.Culvert{Traffic: peer.SCIONTraffic{Cold: true, Size: peer.FrameSize}}
	}},
}

// workerPrograms are rows of what the receiving CPU does by itself, with a worker on. In those named spread- it puts each packet into
// the queue of the worker. In those named own- it is the worker's CPU itself and processes each packet at once.
func workerPrograms() []peer.Candidate {
	var all []peer.Candidate
	for _, s := range spread {
		all = append(all, workerRow("spread-"+s.name, s.device, true), workerRow("own-"+s.name, s.device, false))
	}
	return all
}

// workerPaths are rows end to end, through the queue of a worker: the whole path, and the worker's part of it.
func workerPaths() []peer.Candidate {
	var all []peer.Candidate
	for _, s := range spread {
		part := peer.Candidate{Name: workerPart + s.name, Device: func(o peer.DeviceOptions) peer.Device {
			return timed{newSpreading(s.device(o), true)}
		}}
		all = append(all, workerRow("spread-"+s.name, s.device, true), part)
	}
	return all
}

// workerPart begins the names of rows that have the worker's part of a path.
const workerPart = "worker-"

// Whole tells whether a row of Rows is about a path from end to end.
func Whole(row string) bool {
	path, ok := strings.CutPrefix(row, "path/")
	return ok && !strings.HasPrefix(path, workerPart)
}

func workerRow(name string, device func(peer.DeviceOptions) spreadable, queued bool) peer.Candidate {
	return peer.Candidate{Name: name, Device: func(o peer.DeviceOptions) peer.Device { return newSpreading(device(o), queued) }}
}

// spreading is a device with one worker, on the only CPU of a guest.
type spreading struct {
	spreadable
	// queued says that packets go through the queue of the worker, though it is on the CPU that receives them.
	queued bool
	in     load.End
	// worker is the worker's kernel thread, softirq that of the CPU.
	worker, softirq int
}

func newSpreading(device spreadable, queued bool) *spreading {
	device.Spread([]int{load.LastCPU()})
	return &spreading{spreadable: device, queued: queued}
}

// Attach implements peer.Device.
func (d *spreading) Attach(ctx context.Context, p peer.Path) error {
	d.in = p.In
	if err := d.spreadable.Attach(ctx, p); err != nil || !d.queued {
		return err
	}
	inst := d.Instance()
	// Of a worker that another CPU has ever fed, each packet goes through the queue.
	if err := inst.Map(bpfobj.PipelineMapWorkerFed).Put(uint32(0), uint32(1)); err != nil {
		return fmt.Errorf("have packets go through the queue of the worker: %w", err)
	}
	var err error
	if d.worker, err = load.CPUMapThread(inst.Map(bpfobj.PipelineMapWorkerCpus), load.LastCPU()); err != nil {
		return err
	}
	if d.softirq, err = load.SoftirqThread(load.LastCPU()); err != nil {
		return err
	}
	// The worker empties its queue after each batch of the generator, so that there are never more packets in it.
	return load.Hurry(d.worker)
}

// SetTraffic implements trafficSetter.
func (d *spreading) SetTraffic(v *scenario.VethOptions) {
	if t, ok := d.spreadable.(trafficSetter); ok {
		t.SetTraffic(v)
	}
}

// Learns tells whether a packet that is repeated is like a new one.
func (d *spreading) Learns() bool {
	_, keeps := d.spreadable.(*peer.Culvert)
	return !keeps
}

// Check tells whether packets went through the queue of the worker, all or none.
func (d *spreading) Check() error {
	by, err := d.Instance().Enqueued()
	if err != nil {
		return err
	}
	enqueued := uint64(0)
	for _, n := range by {
		enqueued += n
	}
	ports, err := d.Instance().Ports()
	if err != nil {
		return err
	}
	forwarded := uint64(0)
	for _, p := range ports {
		if p.Interface != d.in.Name {
			continue
		}
		if n := p.Losses[stats.LossWorkerQueue]; n > 0 {
			return fmt.Errorf("the queue of the worker was too short for %d packets", n)
		}
		for _, r := range p.Reasons {
			if r.Verdict == string(datapath.VerdictFwd) {
				forwarded += r.Packets
			}
		}
	}
	if d.queued && enqueued == 0 {
		return errors.New("no packet went through the queue of the worker")
	}
	if !d.queued && (enqueued > 0 || forwarded == 0) {
		return fmt.Errorf("%d packets went through the queue of the worker, and %d were forwarded", enqueued, forwarded)
	}
	return nil
}

// timed is a row that has the worker's part alone, from the queue to the far end.
type timed struct{ *spreading }

// Used implements partial. On Linux 6.1 the CPU's own thread receives at the far end, since it has been woken before by the generator's
// full batches. Later the worker does.
func (d timed) Used() (time.Duration, error) {
	worker, err := load.ProcessTime(d.worker)
	if err != nil {
		return 0, err
	}
	softirq, err := load.ProcessTime(d.softirq)
	return worker + softirq, err
}
