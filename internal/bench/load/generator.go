// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// packetsPerCall bounds the packets of one system call. Each call takes some 27 ms to set up, so there should be few. A call
// that is stopped still runs the program for all its packets, only without sending.
const packetsPerCall = 1 << 22

// pacedCall bounds the duration of a call when packets are paced.
const pacedCall = 10 * time.Second

// pacedHold is the shortest time that one run of the program waits for its packet to be due. A packet that is due later
// takes several runs.
const pacedHold = 500 * time.Microsecond

// idleCalls is the number of calls in a row that may send nothing.
const idleCalls = 3

// GeneratorOptions says what a Generator sends, and how.
type GeneratorOptions struct {
	// Frames are whole Ethernet frames without frame check sequence. They take turns.
	Frames [][]byte
	// Header is the number of bytes of each frame that are written for each packet, 0 for all of them. A short header makes
	// long frames cheaper. It must cover all bytes that the device under test may change. The bytes after it must be the
	// same in all frames.
	Header int
	// From is the veth end that frames leave by. The far end needs an XDP program or GRO on, or it loses the frames.
	From End
	// Stamp puts flow, sequence number and time into the last 16 bytes of each frame, for a Sink to read. Checksums remain
	// valid. Stamped frames of different lengths are written as a whole, whatever Header is.
	Stamp bool
	// Flows is the number of flows that the stamps tell apart, 0 for one for each frame. Frame i belongs to flow i mod Flows.
	Flows int
	// Vary, if not 0, is the number of flows that take turns in place of the flows of Frames. The generator makes the source
	// address and port of each packet from the number of its flow (VARY_SPREAD in bpf/bench/vary.h). Frames must be TCP over
	// IPv4 without IPv4 options. VaryFrom is the number of the first flow.
	Vary, VaryFrom uint32
	// Untimed leaves the time out of stamps, which is cheaper. SinkOptions.Untimed has to be set as well.
	Untimed bool
	// CPU is the CPU that the generator runs on. A receiver without a thread of its own runs there as well.
	CPU int
	// Hold is how long a paced packet may wait to leave in a batch with others, 0 for 2 microseconds. Each batch wakes a
	// receiver on another CPU, and that takes the generator a microsecond or more.
	Hold time.Duration
	// Nice is the nice value of the generator's thread.
	Nice int
	// Realtime gives the generator's thread real-time priority, before all ordinary threads on its CPU.
	Realtime bool
}

// Sent says what a generator passed to its device.
type Sent struct {
	Packets uint64
	Bytes   uint64
	// Elapsed is the time from the first packet of a system call to the last, summed over calls.
	Elapsed time.Duration
}

// Generator sends frames from a table out of a device, as fast as one CPU can. It writes each frame anew before sending.
type Generator struct {
	objs struct {
		Generate  *ebpf.Program `ebpf:"bench_generate"`
		Sent      *ebpf.Map     `ebpf:"sent"`
		Templates *ebpf.Map     `ebpf:"templates"`
		// Stop makes the rest of a call send nothing.
		Stop *ebpf.Variable `ebpf:"stop"`
	}
	opts  GeneratorOptions
	table *table
	// next is the number of the next frame. flow is the number of the next flow with GeneratorOptions.Vary.
	next, flow uint32
	// gap is the time between paced packets, 0 without a pace.
	gap time.Duration
	// due is when the next packet may go, in CLOCK_MONOTONIC nanoseconds.
	due uint64
}

// NewGenerator loads a generator. It sends nothing before Run.
func NewGenerator(o GeneratorOptions) (*Generator, error) {
	t, err := newTable(o.Frames, o.Header)
	if err != nil {
		return nil, err
	}
	if o.Stamp {
		if err := t.stamp(o.Flows); err != nil {
			return nil, err
		}
	}
	spec, err := loadBenchGen()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		t.size(spec),
		spec.Variables[benchGenVarOutIfindex].Set(uint32(o.From.Index)),
		spec.Variables[benchGenVarBaseLen].Set(uint32(len(t.base))),
		spec.Variables[benchGenVarVaryFlows].Set(o.Vary),
		spec.Variables[benchGenVarStamps].Set(o.Stamp),
		spec.Variables[benchGenVarTimed].Set(o.Stamp && !o.Untimed),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare the generator: %w", err)
	}
	g := &Generator{opts: o, table: t, flow: o.VaryFrom}
	if err := spec.LoadAndAssign(&g.objs, nil); err != nil {
		return nil, fmt.Errorf("load the generator: %w", err)
	}
	if err := t.fill(g.objs.Templates); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Pace bounds the rate of the next runs, in packets a second; 0 stands for as many as possible. The CPU is busy either
// way. The time between packets is rounded up to whole nanoseconds. Packets that are due within GeneratorOptions.Hold leave
// in one batch of at most 16, so the first packet of a batch may leave that much later.
func (g *Generator) Pace(packets float64) {
	g.gap = 0
	if packets > 0 {
		g.gap = time.Duration(math.Ceil(float64(time.Second) / packets))
	}
}

// pacedBatch is the number of paced packets that leave in one batch: those that are due within hold. Small batches take more
// time for each packet.
func pacedBatch(gap, hold time.Duration) uint32 {
	const largest = 16
	return uint32(min(max(hold/max(gap, 1), 1), largest))
}

// batchHold is the default of GeneratorOptions.Hold.
const batchHold = 2 * time.Microsecond

// Run sends packets, beginning with the frame after the last one of the previous run. When ctx ends or something fails, it
// returns what was sent until then, with the error.
func (g *Generator) Run(ctx context.Context, packets uint64) (Sent, error) {
	var total Sent
	if err := g.objs.Stop.Set(false); err != nil {
		return total, fmt.Errorf("prepare the generator for a run: %w", err)
	}
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		// On an error the call sends all of its packets.
		_ = g.objs.Stop.Set(true)
	})
	defer func() {
		if !keep() {
			<-stopped
		}
	}()
	err := g.opts.From.Netns.Do(func() error {
		if err := Pin(g.opts.CPU); err != nil {
			return err
		}
		if g.opts.Nice != 0 {
			if err := SetNice(0, g.opts.Nice); err != nil {
				return err
			}
		}
		if g.opts.Realtime {
			if err := setRealtime(0); err != nil {
				return err
			}
		}
		idle := 0
		for total.Packets < packets {
			if err := ctx.Err(); err != nil {
				return err
			}
			quota := min(packets-total.Packets, packetsPerCall)
			if g.gap > 0 {
				quota = min(quota, max(1, uint64(pacedCall/g.gap)))
			}
			sent, err := g.call(quota)
			total.Packets += sent.Packets
			total.Bytes += sent.Bytes
			total.Elapsed += sent.Elapsed
			if err != nil {
				return err
			}
			// A paced call may end before its packet is due. It lasts about as long as the gap, so few calls in a row can.
			idle++
			if sent.Packets > 0 {
				idle = 0
			}
			if ctx.Err() == nil && (sent.Packets < quota && g.gap == 0 || idle > idleCalls) {
				return fmt.Errorf("send from %s: the generator stopped after %d packets of %d", g.opts.From.Name,
					sent.Packets, quota)
			}
		}
		return nil
	})
	return total, err
}

// call sends up to quota packets in one system call on the calling thread. With a pace it may send fewer.
func (g *Generator) call(quota uint64) (Sent, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return Sent{}, fmt.Errorf("count the CPUs: %w", err)
	}
	states := make([]benchGenProgress, cpus)
	states[g.opts.CPU] = benchGenProgress{Quota: quota, Next: g.next, Flow: g.flow, GapNs: uint64(g.gap), DueNs: g.due}
	if err := g.objs.Sent.Put(uint32(0), states); err != nil {
		return Sent{}, fmt.Errorf("reset the generator's counters: %w", err)
	}
	o := &ebpf.RunOptions{
		Data:   g.table.base,
		Repeat: uint32(quota),
		Flags:  unix.BPF_F_TEST_XDP_LIVE_FRAMES,
	}
	if g.gap > 0 {
		o.Repeat *= 1 + uint32(min(g.gap, pacedCall)/pacedHold)
		o.BatchSize = pacedBatch(g.gap, cmp.Or(g.opts.Hold, batchHold))
	}
	_, runErr := g.objs.Generate.Run(o)
	if err := g.objs.Sent.Lookup(uint32(0), &states); err != nil {
		return Sent{}, errors.Join(runErr, fmt.Errorf("read the generator's counters: %w", err))
	}
	s := states[g.opts.CPU]
	g.next, g.flow, g.due = s.Next, s.Flow, s.DueNs
	sent := Sent{Packets: s.Packets, Bytes: s.Bytes}
	sent.Elapsed = s.elapsed()
	const page = 4096
	if errors.Is(runErr, unix.EINVAL) && len(g.table.base) > page/2 {
		runErr = fmt.Errorf("%w: the kernel makes such frames in one page, which leaves some 3400 bytes; "+
			"tcpreplay sends longer ones", runErr)
	}
	if runErr != nil {
		return sent, fmt.Errorf("send frames of up to %d bytes from %s: %w", len(g.table.base), g.opts.From.Name, runErr)
	}
	return sent, nil
}

// elapsed is the time from the first packet to the last. It is 0 for a call that was stopped before its first packet.
func (s benchGenProgress) elapsed() time.Duration {
	if s.FirstNs == 0 || s.LastNs < s.FirstNs {
		return 0
	}
	return time.Duration(s.LastNs - s.FirstNs)
}

// Frames are the frames that take turns.
func (g *Generator) Frames() [][]byte { return g.table.frames }

// CPU is the CPU that the generator runs on.
func (g *Generator) CPU() int { return g.opts.CPU }

// Close unloads the generator.
func (g *Generator) Close() error {
	return errors.Join(g.objs.Generate.Close(), g.objs.Sent.Close(), g.objs.Templates.Close())
}
