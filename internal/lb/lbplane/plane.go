// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Plane reads and writes the maps of the load balancer of an instance. What a call writes is in force at once. Each call is
// one step: a packet sees all of it or nothing.
type Plane struct{ inst *datapath.Instance }

// errOff is returned for a data plane whose load balancer is off.
var errOff = errors.New("it balances no load: its configuration has no [lb] table")

// Edit calls change under the instance's lock, so that nobody else changes the load balancer meanwhile. No process has to
// serve the instance. Errors of change are returned as they are.
func Edit(i *datapath.Instance, change func(*Plane) error) error {
	if OptionsOf(i) == nil {
		return fmt.Errorf("changing the load balancer of %s: %w", i.Name(), errOff)
	}
	return i.Edit(func(now *datapath.Instance) error {
		if OptionsOf(now) == nil {
			return fmt.Errorf("changing the load balancer of %s: %w", i.Name(), errOff)
		}
		return change(&Plane{inst: now})
	})
}

// View returns the load balancer of i for reading. It is valid while i is open.
func View(i *datapath.Instance) (*Plane, error) {
	if OptionsOf(i) == nil {
		return nil, fmt.Errorf("%s: %w", i.Name(), errOff)
	}
	return &Plane{inst: i}, nil
}

// Options returns the options that the load balancer was loaded with.
func (p *Plane) Options() Options { return *OptionsOf(p.inst) }

// Name returns the name of the instance.
func (p *Plane) Name() string { return p.inst.Name() }

// State returns what the last SetState has stored, nil if that is nothing.
func (p *Plane) State() ([]byte, error) {
	var err error
	for range stateTries { // another process may be writing
		var b []byte
		if b, err = p.readState(); err == nil {
			return b, nil
		}
		time.Sleep(statePause)
	}
	return nil, fmt.Errorf("reading the load balancer's state of %s: %w", p.Name(), err)
}

const (
	stateTries = 20
	statePause = 5 * time.Millisecond
)

func (p *Plane) readState() ([]byte, error) {
	m := p.inst.Map(bpfobj.PipelineMapLbState)
	var head bpfobj.PipelineLbChunk
	if err := m.Lookup(uint32(0), &head); err != nil {
		return nil, err
	}
	half, size := bpfobj.Native.Uint32(head.Bytes[8:]), int(bpfobj.Native.Uint32(head.Bytes[12:]))
	if size == 0 {
		return nil, nil
	}
	packed := make([]byte, 0, size)
	for n := uint32(0); len(packed) < size; n++ {
		var chunk bpfobj.PipelineLbChunk
		if err := m.Lookup(1+half*stateHalf+n, &chunk); err != nil {
			return nil, err
		}
		packed = append(packed, chunk.Bytes[:min(len(chunk.Bytes), size-len(packed))]...)
	}
	if crc32.ChecksumIEEE(packed) != bpfobj.Native.Uint32(head.Bytes[16:]) {
		return nil, errors.New("wrong checksum")
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// SetState stores the state of user space with the data plane: at most 2 MiB once compressed by gzip. It is one step: if the
// process dies in the middle, the state from before stays.
func (p *Plane) SetState(b []byte) error {
	writes, err := p.stateWrites(b)
	for n := range writes {
		if err == nil {
			err = p.inst.Map(bpfobj.PipelineMapLbState).Put(writes[n].key, &writes[n].chunk)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the load balancer's state of %s: %w", p.Name(), err)
	}
	return nil
}

// stateWrite is one map update of SetState.
type stateWrite struct {
	key   uint32
	chunk bpfobj.PipelineLbChunk
}

// stateWrites returns the updates that fill the unused half of lb_state and then make it the one in use. Chunk 0 has the
// serial number (8 bytes), the half in use (4), the size (4) and the CRC-32 (4) of the compressed state.
func (p *Plane) stateWrites(b []byte) (writes []stateWrite, err error) {
	var head bpfobj.PipelineLbChunk
	if err := p.inst.Map(bpfobj.PipelineMapLbState).Lookup(uint32(0), &head); err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // fails for invalid levels only
	_, _ = z.Write(b)                                    // a bytes.Buffer does not fail
	_ = z.Close()
	if packed.Len() > stateHalf*len(head.Bytes) {
		return nil, fmt.Errorf("%d bytes are too many: use fewer backends", packed.Len())
	}
	serial, half := bpfobj.Native.Uint64(head.Bytes[:])+1, 1-bpfobj.Native.Uint32(head.Bytes[8:])&1
	left := packed.Bytes()
	for n := uint32(0); len(left) > 0; n++ {
		w := stateWrite{key: 1 + half*stateHalf + n}
		left = left[copy(w.chunk.Bytes[:], left):]
		writes = append(writes, w)
	}
	bpfobj.Native.PutUint64(head.Bytes[:], serial)
	bpfobj.Native.PutUint32(head.Bytes[8:], half)
	bpfobj.Native.PutUint32(head.Bytes[12:], uint32(packed.Len()))
	bpfobj.Native.PutUint32(head.Bytes[16:], crc32.ChecksumIEEE(packed.Bytes()))
	return append(writes, stateWrite{chunk: head}), nil
}

// Serial returns the number of the state. Each SetState adds 1.
func (p *Plane) Serial() (uint64, error) {
	var head bpfobj.PipelineLbChunk
	if err := p.inst.Map(bpfobj.PipelineMapLbState).Lookup(uint32(0), &head); err != nil {
		return 0, fmt.Errorf("reading the load balancer's state of %s: %w", p.Name(), err)
	}
	return bpfobj.Native.Uint64(head.Bytes[:]), nil
}

func (k VIPKey) raw() (raw bpfobj.PipelineLbVipKey) {
	raw.Addr.W = bpfobj.AddrWords(k.Addr)
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], k.Port)
	raw.Port = bpfobj.Native.Uint16(b[:])
	raw.Proto = k.Proto
	return raw
}
