// SPDX-License-Identifier: Apache-2.0

// Package captureplane puts programs that show packets to user space in the place of those that a data plane runs. They are the
// same programs, with the same maps and constants, and with the code of a capture (bpf/core/capture.h), which the programs of a
// data plane without a capture do not have.
package captureplane

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
)

// Name is the name of the part.
const Name = "capture"

// MaxInterfaces is how many interfaces a capture can be limited to (CAPTURE_INTERFACES of bpf/core/capture.h).
const MaxInterfaces = 8

// Options say what is captured.
type Options struct {
	// Expression is what Program was compiled from, for people.
	Expression string
	// Program selects frames. It is classic BPF for Ethernet frames.
	Program cbpf.Program
	// InBytes and OutBytes are how many bytes of a frame are shown, as it comes in and as it goes out. 0 shows none.
	InBytes, OutBytes int
	// Sample selects one of so many packets that match, at random. 0 and 1 select all.
	Sample int
	// Interfaces are those that the packets come in by or go out by. Empty: all.
	Interfaces []string
}

// state is what is stored with the programs.
type state struct {
	Options
}

func stateOf(f *datapath.Front) (*state, error) {
	if f.State == nil {
		return nil, nil
	}
	s := new(state)
	if err := json.Unmarshal(trimZeros(f.State), s); err != nil {
		return nil, fmt.Errorf("reading the state of the capture: %w", err)
	}
	return s, nil
}

// trimZeros removes the zeros that the engine may add to a state.
func trimZeros(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}

// Part is the capture's part of a data plane, an observer: its program takes the place of rx while somebody captures.
type Part struct{}

func init() { datapath.RegisterObserver(func() datapath.Observer { return Part{} }) }

// Name implements datapath.Part.
func (Part) Name() string { return Name }

// Check implements datapath.Part.
func (Part) Check() error { return nil }

// State implements datapath.Part.
func (Part) State(*datapath.Instance) (datapath.State, error) { return datapath.State{}, nil }

// Load implements datapath.Part.
func (Part) Load(*datapath.Loading) error { return nil }

// Shared implements datapath.Part.
func (Part) Shared(*datapath.Loading) []string { return nil }

// Fill implements datapath.Part.
func (Part) Fill(*datapath.Loading, *datapath.Instance) error { return nil }

// Rebuild implements datapath.Fronted. A capture whose process is gone ends.
func (Part) Rebuild(old *datapath.Front, on datapath.Behind) (*datapath.Front, error) {
	s, err := stateOf(old)
	if err != nil || s == nil || !owned(on.Inst) {
		return &datapath.Front{}, err
	}
	return s.front(on.Inst, old.Maps)
}

// NeedsRebuild implements datapath.Fronted. The program knows interfaces by their indexes.
func (Part) NeedsRebuild(old *datapath.Front, iface string) (bool, error) {
	s, err := stateOf(old)
	return s != nil && slices.Contains(s.Interfaces, iface), err
}

// Shape implements datapath.Observer.
func (Part) Shape(f *datapath.Front, part string) (*ebpf.CollectionSpec, map[string]*ebpf.Map, error) {
	if part != filterStage {
		return nil, nil, nil
	}
	s, err := stateOf(f)
	if err != nil || s == nil {
		return nil, nil, err
	}
	spec, err := bpfobj.LoadFilterCapture()
	if err == nil {
		err = s.shape(spec)
	}
	return spec, f.Maps, err
}

// filterStage is the only part with a program in front that can show packets.
const filterStage = "filter"

// newMaps makes the maps of a capture.
func newMaps() (map[string]*ebpf.Map, error) {
	spec, err := bpfobj.LoadCapture()
	if err != nil {
		return nil, err
	}
	all := make(map[string]*ebpf.Map)
	for _, name := range []string{bpfobj.CaptureMapCaptureEvents, bpfobj.CaptureMapCapturePackets} {
		if all[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			delete(all, name)
			closeMaps(all)
			return nil, fmt.Errorf("creating map %s: %w", name, bpfobj.LoadError(err))
		}
	}
	return all, nil
}

// cloneMaps returns handles of their own for maps.
func cloneMaps(of map[string]*ebpf.Map) (map[string]*ebpf.Map, error) {
	all := make(map[string]*ebpf.Map)
	for name, m := range of {
		c, err := m.Clone()
		if err != nil {
			closeMaps(all)
			return nil, fmt.Errorf("opening map %s: %w", name, err)
		}
		all[name] = c
	}
	return all, nil
}

func closeMaps(all map[string]*ebpf.Map) {
	for _, m := range all {
		m.Close()
	}
}

// front returns the program that takes the place of rx, and gives the workers theirs. shared are the maps of the capture.
func (s *state) front(inst *datapath.Instance, shared map[string]*ebpf.Map) (_ *datapath.Front, err error) {
	f := &datapath.Front{}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.State, err = json.Marshal(s); err != nil {
		return nil, err
	}
	if f.Maps, err = cloneMaps(shared); err != nil {
		return nil, err
	}
	spec, err := bpfobj.LoadCapture()
	if err == nil {
		err = s.shape(spec)
	}
	if err != nil {
		return nil, err
	}
	coll, err := inst.Variant(spec, shared)
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	// The engine finds rx by the program array of the program in front of it. This program does not go on to rx.
	f.TailCall, err = ebpf.NewMap(&ebpf.MapSpec{Name: "capture_rest", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("creating map capture_rest: %w", bpfobj.LoadError(err))
	}
	if err := inst.SetWorkers(coll.Programs[bpfobj.PipelineProgWorker]); err != nil {
		return nil, err
	}
	f.Prog = coll.DetachProgram(bpfobj.PipelineProgRx)
	return f, nil
}

// shape puts the options and the expression into an object.
func (s *state) shape(spec *ebpf.CollectionSpec) error {
	var on [MaxInterfaces]uint32
	for n, name := range s.Interfaces {
		on[n] = ^uint32(0) // no interface, until the name is there again
		if i, err := net.InterfaceByName(name); err == nil {
			on[n] = uint32(i.Index)
		}
	}
	for name, value := range map[string]any{
		bpfobj.CaptureVarCaptureInBytes:    uint32(s.InBytes),
		bpfobj.CaptureVarCaptureOutBytes:   uint32(s.OutBytes),
		bpfobj.CaptureVarCaptureSample:     uint32(max(s.Sample, 1)),
		bpfobj.CaptureVarCaptureInterfaces: on,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	body, err := matchBody(s.Program)
	if err != nil {
		return err
	}
	for _, p := range spec.Programs {
		if p.Instructions, err = cbpf.ReplaceFunction(p.Instructions, fnMatch, body); err != nil {
			return err
		}
	}
	return nil
}

// loadSlot is where the code of an expression keeps what it loads, on its stack. A function of its own to load by, as the filter has
// it, would need more stack behind rx than Linux 6.1 allows.
const loadSlot = -8

// fnMatch is the function of bpf/core/capture.h that has the expression.
const fnMatch = "capture_match"

// matchBody returns the code of capture_match: it returns 1 for frames that the program selects, and 0 for others.
func matchBody(p cbpf.Program) (asm.Instructions, error) {
	code, err := p.Translate(cbpf.Options{
		Prefix: "capture_", Match: "capture.match", NoMatch: "capture.other", Short: "capture.other", Next: "capture.match",
		Stack: loadSlot - cbpf.MemorySize, LoadSlot: loadSlot,
	})
	if err != nil {
		return nil, fmt.Errorf("translating the expression: %w", err)
	}
	body := asm.Instructions{
		asm.Mov.Reg(asm.R8, asm.R1),
		asm.LoadMem(asm.R9, asm.R1, 0, asm.Word), // ctx->data
		// Never taken: the verifier refuses code that no jump leads to, and an expression may match all frames or none.
		asm.JEq.Imm(asm.R8, 0, "capture.match"),
		asm.JEq.Imm(asm.R8, 0, "capture.other"),
	}
	body = append(body, code...)
	return append(body,
		asm.Mov.Imm(asm.R0, 1).WithSymbol("capture.match"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("capture.other"),
		asm.Return(),
	), nil
}
