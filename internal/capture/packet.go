// SPDX-License-Identifier: Apache-2.0

// Package capture shows the packets of a data plane, as they come in and as they go out, with the verdict on each: also those that
// the kernel's own capture never sees, because they are redirected or dropped before it.
package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/perf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/capture/captureplane"
	"culvert/internal/datapath"
)

// Packet is a captured packet with its verdict.
type Packet struct {
	// ID is the same as that of no other packet of the capture.
	ID uint64
	// In is the frame that came in. It is nil for a packet that the expression matches on its way out only.
	In *Frame
	// Out is the frame that went out, changed or not. It is nil for a packet that was dropped, or went to the kernel or to the slow
	// path, unchanged.
	Out *Frame
	// Decided is when the verdict was given.
	Decided time.Time
	// Reason is what the packet is counted under. Limited says that it would have been punted, and was dropped because it was over
	// the rate.
	Reason  datapath.Reason
	Limited bool
}

// Frame is a frame as it came in or went out.
type Frame struct {
	Time time.Time
	// Interface is the index of the interface.
	Interface int
	// Length is that of the whole frame, in bytes. Data has its beginning.
	Length int
	Data   []byte
}

// Verdict returns what happened to the packet: pass, punt, drop, or fwd.
func (p *Packet) Verdict() datapath.Verdict {
	if p.Limited {
		return datapath.VerdictDrop
	}
	return p.Reason.Verdict
}

// Words describes the verdict: "drop filter", or "drop scion-mac, over the rate".
func (p *Packet) Words() string {
	text := string(p.Verdict()) + " " + p.Reason.Name
	if p.Limited {
		text += ", a punt over its rate"
	}
	return text
}

// maxPending is how many packets may wait for their verdict. More are there only if their verdicts were lost.
const maxPending = 4096

// joiner makes packets of records.
type joiner struct {
	session *captureplane.Session
	record  perf.Record
	// boot is the time of CLOCK_MONOTONIC's zero.
	boot    time.Time
	pending map[uint64]*Packet
	order   []uint64 // of pending, the oldest first
	lost    uint64   // packets without a verdict
}

func newJoiner(s *captureplane.Session) (*joiner, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return nil, fmt.Errorf("reading the clock: %w", err)
	}
	return &joiner{session: s, boot: time.Now().Add(-time.Duration(now.Nano())), pending: make(map[uint64]*Packet)}, nil
}

// batch is how many packets are put in order at a time.
const batch = 512

// next returns the next packets that have their verdicts, in the order in which they came, or none if none has got one for a while.
func (j *joiner) next(wait time.Duration) (all []*Packet, err error) {
	j.session.Reader().SetDeadline(time.Now().Add(wait))
	for len(all) < batch {
		err := j.session.Read(&j.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		var r bpfobj.CaptureCaptureRecord
		size := int(unsafe.Sizeof(r))
		raw := j.record.RawSample
		if len(raw) < size {
			return nil, fmt.Errorf("a record of %d bytes: want %d or more", len(raw), size)
		}
		if err := binary.Read(bytes.NewReader(raw[:size]), binary.NativeEndian, &r); err != nil {
			return nil, err
		}
		if p := j.add(r, raw[size:]); p != nil {
			if all == nil { // the buffers of other CPUs may have packets that came before
				j.session.Reader().SetDeadline(time.Now().Add(orderWait))
			}
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *Packet) int { return a.came().Compare(b.came()) })
	return all, nil
}

// orderWait is how long packets wait for those of other CPUs.
const orderWait = 5 * time.Millisecond

// came returns when the packet came in, as far as it is known.
func (p *Packet) came() time.Time {
	if p.In != nil {
		return p.In.Time
	}
	return p.Decided
}

// add takes a record, with the bytes behind it. It returns the packet if the record is its last.
func (j *joiner) add(r bpfobj.CaptureCaptureRecord, data []byte) *Packet {
	at := j.boot.Add(time.Duration(r.Time))
	frame := func(index uint32) *Frame {
		return &Frame{Time: at, Interface: int(index), Length: int(r.Len), Data: bytes.Clone(data[:min(int(r.Shown), len(data))])}
	}
	p := j.pending[r.Id]
	switch bpfobj.CaptureCaptureKind(r.Kind) {
	case bpfobj.CaptureCaptureKindCAPTURE_IN:
		j.wait(&Packet{ID: r.Id, In: frame(r.Ingress)})
		return nil
	case bpfobj.CaptureCaptureKindCAPTURE_ENQUEUED: // the worker shows it
		delete(j.pending, r.Id)
		return nil
	}
	if p == nil {
		p = &Packet{ID: r.Id}
	}
	delete(j.pending, r.Id)
	p.Decided = at
	reasons := datapath.Reasons()
	if n := int(bpfobj.PipelineReason(r.Reason).Index()); n < len(reasons) {
		p.Reason = reasons[n]
	} else if n -= len(reasons); n < len(reasons) {
		p.Reason, p.Limited = reasons[n], true
	}
	if r.Egress != 0 {
		p.Out = frame(r.Egress)
	}
	return p
}

// wait keeps a packet until its verdict comes.
func (j *joiner) wait(p *Packet) {
	j.pending[p.ID] = p
	j.order = append(j.order, p.ID)
	for len(j.pending) > maxPending {
		if _, waits := j.pending[j.order[0]]; waits {
			delete(j.pending, j.order[0])
			j.lost++
		}
		j.order = j.order[1:]
	}
	if len(j.order) > 4*maxPending {
		j.order = slices.DeleteFunc(j.order, func(id uint64) bool { return j.pending[id] == nil })
	}
}
