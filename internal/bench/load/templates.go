// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

const (
	// MinFrame is the shortest frame that the kernel lets an XDP program run on: an Ethernet header.
	MinFrame = 14
	// templateHead is the size of struct frame_template without its header bytes.
	templateHead = 24
)

// table is a set of frames, ready to be loaded into the map "templates".
type table struct {
	frames [][]byte
	// base is the longest frame: what a test run starts from.
	base []byte
	// header is how many bytes of each frame are rewritten, at most.
	header int
	// stamps says how each frame is stamped, nil if frames are not.
	stamps []stamping
}

// newTable checks frames. Of each frame the first header bytes are rewritten for every packet, all of them if
// header is 0. What follows is never written, so it has to be the same in all frames.
func newTable(frames [][]byte, header int) (*table, error) {
	if len(frames) == 0 {
		return nil, errors.New("no frames given: at least one is needed")
	}
	t := &table{frames: frames, header: header}
	for i, f := range frames {
		if len(f) < MinFrame {
			return nil, fmt.Errorf("frame %d has %d bytes: at least %d are needed", i, len(f), MinFrame)
		}
		if len(f) > len(t.base) {
			t.base = f
		}
	}
	if header == 0 || header > len(t.base) {
		t.header = len(t.base)
	}
	for i, f := range frames {
		if len(f) > t.header && !bytes.Equal(f[t.header:], t.base[t.header:len(f)]) {
			return nil, fmt.Errorf("frame %d differs from the others after byte %d, where nothing is rewritten: "+
				"make the rewritten header longer", i, t.header)
		}
	}
	return t, nil
}

// stamp has frames stamped: frame i of flow i mod flows, 0 for a flow of its own for each frame.
func (t *table) stamp(flows int) error {
	if flows == 0 {
		flows = len(t.frames)
	}
	if flows < 0 || flows > min(len(t.frames), maxFlows) {
		return fmt.Errorf("%d flows asked for: with %d frames there can be 1 to %d", flows, len(t.frames),
			min(len(t.frames), maxFlows))
	}
	if err := CheckStampRoom(t.frames); err != nil {
		return err
	}
	for _, f := range t.frames {
		if len(f) != len(t.base) {
			// The stamp of a short frame stays where a longer one has its payload.
			t.header = len(t.base)
		}
	}
	t.stamps = stampings(t.frames, flows)
	return nil
}

// size gives the map and the programs of spec the dimensions of the table.
func (t *table) size(spec *ebpf.CollectionSpec) error {
	m := spec.Maps[BenchMapTemplates]
	m.MaxEntries = uint32(len(t.frames))
	m.ValueSize = uint32(templateHead + (t.header+7)/8*8)
	// The description of the value is that of a template without any bytes.
	m.Key, m.Value = nil, nil
	oneLength := true
	for _, f := range t.frames {
		oneLength = oneLength && len(f) >= t.header
	}
	return errors.Join(
		spec.Variables[BenchVarOneLength].Set(oneLength),
		spec.Variables[BenchVarTemplateCount].Set(uint32(len(t.frames))),
		spec.Variables[BenchVarHeaderMax].Set(uint32(t.header)),
	)
}

// fill writes the table into the map that size has described.
func (t *table) fill(m *ebpf.Map) error {
	value := make([]byte, m.ValueSize())
	for i, f := range t.frames {
		header := f[:min(len(f), t.header)]
		clear(value)
		binary.NativeEndian.PutUint32(value[0:], uint32(len(f)))
		binary.NativeEndian.PutUint32(value[4:], uint32(len(header)))
		if t.stamps != nil {
			t.stamps[i].put(value[8:])
		}
		copy(value[templateHead:], header)
		if err := m.Put(uint32(i), value); err != nil {
			return fmt.Errorf("write frame %d into the template table: %w", i, err)
		}
	}
	return nil
}
