// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cilium/ebpf"
)

const (
	// MinFrame is the length in bytes of the shortest frame that the kernel runs an XDP program on: an Ethernet header.
	MinFrame = 14
	// templateHead is the size of struct frame_template in bytes, without the frame's header in it.
	templateHead = 24
)

// table is a set of frames for the map "templates".
type table struct {
	frames [][]byte
	// base is the longest frame, which a test run gets as its input.
	base []byte
	// header is the number of bytes of each frame that are written for each packet, or fewer in a shorter frame.
	header int
	// stamps has the stamping of each frame. It is nil without stamps.
	stamps []stamping
}

// newTable checks frames and makes a table of them. The first header bytes of a frame are written for every packet, or all
// bytes if header is 0. The bytes after them are never written, so they must be the same in all frames.
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

// stamp turns stamps on: frame i belongs to flow i mod flows. If flows is 0, each frame is a flow of its own.
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
			// The stamp of a short frame lies where a longer one has its payload, so longer ones have to be written whole.
			t.header = len(t.base)
		}
	}
	t.stamps = stampings(t.frames, flows)
	return nil
}

// size sets the size of the map "templates" in spec, and the constants of its programs that depend on the table.
func (t *table) size(spec *ebpf.CollectionSpec) error {
	m := spec.Maps[BenchMapTemplates]
	m.MaxEntries = uint32(len(t.frames))
	m.ValueSize = uint32(templateHead + (t.header+7)/8*8)
	// The BTF type of the value describes a template without frame bytes, so it does not fit.
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

// shuffle changes the order of the frames, always in the same way. The table must not have stamps.
func (t *table) shuffle() {
	t.frames = slices.Clone(t.frames)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(t.frames), func(i, j int) { t.frames[i], t.frames[j] = t.frames[j], t.frames[i] })
}

// fill writes the table into the map "templates".
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
