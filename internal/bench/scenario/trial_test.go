// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/search"
	"culvert/internal/testbed"
)

// meter is a device that forwards packets up to a rate, in packets a second. It drops and counts those above it.
type meter struct {
	rate float64
	// silent meters do not report the packets that they drop.
	silent bool
	state  *ebpf.Map
	prog   *ebpf.Program
	on     link.Link
}

// meterBurst is the number of packets that a meter forwards without a gap between them.
const meterBurst = 100

// Attach loads a leaky bucket: a packet is due one gap after the one before. It is dropped if it is early by more than a
// burst.
func (d *meter) Attach(_ context.Context, p peer.Path) (err error) {
	d.state, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		return err
	}
	gap := int32(1e9 / d.rate)
	d.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, d.state.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R6, "due"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R1).WithSymbol("due"),
		asm.Sub.Reg(asm.R2, asm.R6),
		asm.JGT.Imm(asm.R2, meterBurst*gap, "drop"),
		asm.Add.Imm(asm.R1, gap),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(p.Out.Index)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord).WithSymbol("drop"),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1),
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		return err
	}
	d.on, err = p.In.AttachXDP(d.prog)
	return err
}

func (*meter) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.Sink.MAC, p.Source.MAC), nil
}

func (d *meter) Losses() (map[string]uint64, error) {
	var state [2]uint64
	if err := d.state.Lookup(uint32(0), &state); err != nil || d.silent {
		return nil, err
	}
	return map[string]uint64{"meter": state[1]}, nil
}

func (d *meter) Detach() error { return errors.Join(d.on.Close(), d.prog.Close(), d.state.Close()) }

// openMeter builds a path through a meter.
func openMeter(t *testing.T, d *meter) *trialPath {
	t.Helper()
	c := peer.Candidate{Name: "meter", Device: func(peer.DeviceOptions) peer.Device { return d }}
	p, err := openTrialPath(context.Background(), c, Options{}, trialOptions{length: 138, frames: 16})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The search finds the known rate of a device. It is low enough for every machine.
func TestFindsTheRateOfADevice(t *testing.T) {
	// The rate found is the device's only if nothing else takes the CPUs.
	load.AvoidRealtime = false
	defer func() { load.AvoidRealtime = true }()
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	const rate, round = 20_000.0, 250 * time.Millisecond
	p := openMeter(t, &meter{rate: rate})
	found, err := p.findNDR(context.Background(), round, ndrWidth)
	if err != nil {
		t.Fatal(err)
	}
	// In each trial a burst passes in addition to the rate. On a disturbed machine the result may be somewhat lower.
	limit := rate + meterBurst/round.Seconds()
	if found.Lower > limit*(1+ndrWidth) || found.Lower < rate/2 || found.Limit != search.DeviceLimit {
		t.Errorf("%+v, want about %.0f to %.0f", found, rate, limit)
	}
	if p.missing != 0 || p.sum.Lost["meter"] == 0 || p.sum.Sent != p.sum.Received+lostIn(p.sum) {
		t.Errorf("%d missing, sum %+v", p.missing, p.sum)
	}
}

func lostIn(s Sample) (sum uint64) {
	for _, n := range s.Lost {
		sum += n
	}
	return sum
}

// Packets that a device drops without counting them are missing.
func TestTrialsMissWhatNobodyCounted(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	p := openMeter(t, &meter{rate: 1000, silent: true})
	s, err := p.trial(context.Background(), 20_000, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.Missing() < 1000 || p.missing != s.Missing() {
		t.Errorf("%d missing of %+v, %d in all", s.Missing(), s, p.missing)
	}
}

// Packets lost between device and sink are lost by the harness. Without a device there is no such loss.
func TestHarnessLoss(t *testing.T) {
	s := Sample{Lost: map[string]uint64{LostToDevice: 1, LostAtDevice: 2, lostToSink: 4, lostAtSink: 8}}
	p := trialPath{row: &VethRow{Device: &peer.Redirect{}}}
	if got := p.harnessLoss(s); got != 12 {
		t.Errorf("%d, want 12", got)
	}
	p.row.Device = nil
	if got := p.harnessLoss(s); got != 0 {
		t.Errorf("%d without a device, want 0", got)
	}
}

// onOneCPU runs fn on a thread that may use only one CPU.
func onOneCPU(t *testing.T, fn func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if err := load.Pin(load.LastCPU()); err != nil {
		t.Fatal(err)
	}
	fn()
	if err := unix.SchedSetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
}

func TestTrialsNeedTwoCPUs(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, scenario := range []Scenario{NDR(), Latency()} {
		o := shortOptions(t)
		o.Rows = []string{"redirect"}
		onOneCPU(t, func() {
			if _, err := scenario.Measure(context.Background(), o); err == nil || !strings.Contains(err.Error(), "there is only CPU") {
				t.Errorf("%s: error %v", scenario.Name, err)
			}
		})
	}
}
