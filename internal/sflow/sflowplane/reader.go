// SPDX-License-Identifier: Apache-2.0

package sflowplane

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/perf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// bufferBytes is the usual size of the buffer of each CPU: room for a thousand samples.
const bufferBytes = 256 << 10

// Reader reads what the programs of one generation of a data plane say of packets.
type Reader struct {
	Options
	reader *perf.Reader
	record perf.Record
}

func openReader(inst *datapath.Instance, o Options, buffer int) (*Reader, error) {
	r, err := perf.NewReader(inst.Map(bpfobj.SFlowMapSflowEvents), buffer)
	if err != nil {
		return nil, fmt.Errorf("making the buffers of sFlow: %w", bpfobj.LoadError(err))
	}
	return &Reader{Options: o, reader: r}, nil
}

// Record is a packet that was sampled or dropped.
type Record struct {
	bpfobj.SFlowSflowRecord
	// Shown are the first bytes of the frame that came in, and Sent those of the frame that went out. They are valid until the next
	// call of Read.
	Shown, Sent []byte
}

// Sampled tells whether the packet was sampled, and Discarded whether it is to be told of because it was dropped.
func (r *Record) Sampled() bool { return r.Kind&uint32(bpfobj.SFlowSflowKindSFLOW_SAMPLED) != 0 }

// Discarded tells whether the packet was dropped and is to be told of.
func (r *Record) Discarded() bool { return r.Kind&uint32(bpfobj.SFlowSflowKindSFLOW_DISCARDED) != 0 }

// headerAt is where the bytes of the frame begin in a record.
const headerAt = int(unsafe.Offsetof(bpfobj.SFlowSflowRecord{}.Header))

// Read waits for a record until a time. The error is os.ErrDeadlineExceeded if there is none, and also after Wake.
func (r *Reader) Read(until time.Time) (rec Record, err error) {
	r.reader.SetDeadline(until)
	for {
		err := r.reader.ReadInto(&r.record)
		switch {
		case errors.Is(err, perf.ErrFlushed):
			return rec, os.ErrDeadlineExceeded
		case err != nil:
			return rec, err
		case r.record.LostSamples > 0: // the programs have counted them
			continue
		}
		if rec, ok := r.decode(r.record.RawSample); ok {
			return rec, nil
		}
	}
}

// decode returns what is in a record. It has as many bytes of the header as the options say.
func (r *Reader) decode(raw []byte) (rec Record, ok bool) {
	end := headerAt + r.Header
	if len(raw) < end {
		return rec, false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&rec.SFlowSflowRecord)), headerAt), raw)
	shown, out := int(rec.SFlowSflowRecord.Shown), int(rec.Out)
	if shown > r.Header || end+out > len(raw) {
		return rec, false
	}
	rec.Shown, rec.Sent = raw[headerAt:headerAt+shown], raw[end:end+out]
	return rec, true
}

// Wake makes Read return.
func (r *Reader) Wake() { _ = r.reader.Flush() }

// Close closes the buffers.
func (r *Reader) Close() { _ = r.reader.Close() }
