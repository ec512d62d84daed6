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

// packetsPerCall bounds a call to the kernel, of which each costs some 27 ms to set up. A call that is stopped still
// runs the program for what is left of it, only without sending.
const packetsPerCall = 1 << 22

// pacedCall is how long a call lasts at most when packets are paced.
const pacedCall = 10 * time.Second

// pacedHold is how long one run of the program waits for its packet at least, before it takes another run.
const pacedHold = 500 * time.Microsecond

// idleCalls is how many calls in a row may send nothing.
const idleCalls = 3

// GeneratorOptions says what to send from where.
type GeneratorOptions struct {
	// Frames are sent in turn, whole Ethernet frames without checksum.
	Frames [][]byte
	// Header is how many bytes of each frame are rewritten for each packet, 0 for all of them. Give it when
	// frames are long: it must cover all that the device under test may change. After it all frames are alike.
	Header int
	// From is the veth end that frames leave by. Its peer needs an XDP program or GRO on, or the frames are lost.
	From End
	// Stamp leaves flow, sequence number and time in the last 16 bytes of each frame, for a Sink to read. All
	// checksums stay right. With frames of different lengths, Header is not heeded then.
	Stamp bool
	// Flows is how many flows the stamps tell apart, 0 for one for each frame. Frame i belongs to flow i mod Flows.
	Flows int
	// Vary, if not 0, is how many flows take turns in place of those of Frames: the source of each packet, which must be
	// TCP over IPv4 without options, is made from the number of its flow (see clientAddr). VaryFrom is the first.
	Vary, VaryFrom uint32
	// Untimed leaves the time out, which is cheaper. The Sink must be told too.
	Untimed bool
	// CPU is where the generator runs, and with it whatever it hands its packets to.
	CPU int
	// Hold is how long a paced packet may wait to leave in a batch with others, 0 for 2 microseconds. On another CPU
	// than the generator's each batch wakes the receiver, which takes the generator a microsecond or more.
	Hold time.Duration
	// Nice is the generator's nice value.
	Nice int
	// Urgent generators run before all else on their CPU.
	Realtime bool
}

// Sent is what a generator handed over to its device.
type Sent struct {
	Packets uint64
	Bytes   uint64
	// Elapsed runs from the first packet of a call to the last, summed over calls.
	Elapsed time.Duration
}

// Generator sends frames from a table out of a device, as fast as one CPU can, each rewritten before it is sent.
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
	// next is the frame that is sent next, flow the number of the next flow with GeneratorOptions.Vary.
	next, flow uint32
	gap        time.Duration
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

// Pace sets how many packets a second the next runs send at most, 0 for as many as possible. The CPU is busy either
// way. The time between packets is in whole nanoseconds, rounded up. Packets leave in batches of those due within GeneratorOptions.Hold, 16 at most: so long the first may wait for the last.
func (g *Generator) Pace(packets float64) {
	g.gap = 0
	if packets > 0 {
		g.gap = time.Duration(math.Ceil(float64(time.Second) / packets))
	}
}

// pacedBatch is how many packets leave together when they are paced. Small batches cost more, up to a tenth of the
// time between packets.
func pacedBatch(gap, hold time.Duration) uint32 {
	const most = 16
	return uint32(min(max(hold/max(gap, 1), 1), most))
}

// batchHold is the default of GeneratorOptions.Hold.
const batchHold = 2 * time.Microsecond

// Run sends that many packets, going on in the table where the last run ended. It returns what was sent up to
// then when ctx ends or something fails.
func (g *Generator) Run(ctx context.Context, packets uint64) (Sent, error) {
	var total Sent
	if err := g.objs.Stop.Set(false); err != nil {
		return total, fmt.Errorf("prepare the generator for a run: %w", err)
	}
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		// If it fails, the call takes its time.
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
			// Paced calls may end before a packet is due, but each lasts about as long as the gap at least.
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

// call sends up to quota packets in one system call on the calling thread. It may send fewer when they are paced.
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
		runErr = fmt.Errorf("%w: the kernel makes such frames out of one page, which leaves some 3400 bytes; "+
			"tcpreplay sends longer ones", runErr)
	}
	if runErr != nil {
		return sent, fmt.Errorf("send frames of up to %d bytes from %s: %w", len(g.table.base), g.opts.From.Name, runErr)
	}
	return sent, nil
}

// elapsed is the time from the first packet to the last. A call that was to stop before its first packet has none.
func (s benchGenProgress) elapsed() time.Duration {
	if s.FirstNs == 0 || s.LastNs < s.FirstNs {
		return 0
	}
	return time.Duration(s.LastNs - s.FirstNs)
}

// Frames are what the generator sends, by turns.
func (g *Generator) Frames() [][]byte { return g.table.frames }

// CPU is the one that it sends on.
func (g *Generator) CPU() int { return g.opts.CPU }

// Close unloads the generator.
func (g *Generator) Close() error {
	return errors.Join(g.objs.Generate.Close(), g.objs.Sent.Close(), g.objs.Templates.Close())
}
