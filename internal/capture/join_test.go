// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

const (
	recordIn       = uint32(bpfobj.CaptureCaptureKindCAPTURE_IN)
	recordOut      = uint32(bpfobj.CaptureCaptureKindCAPTURE_OUT)
	recordEnqueued = uint32(bpfobj.CaptureCaptureKindCAPTURE_ENQUEUED)
)

func testJoiner() *joiner {
	return &joiner{boot: time.Unix(1000, 0), pending: make(map[uint64]*Packet)}
}

// cameIn takes the record of a frame of 3 of 9 bytes that comes in by interface 7.
func (j *joiner) cameIn(id, at uint64) *Packet {
	return j.add(bpfobj.CaptureCaptureRecord{Time: at, Id: id, Kind: recordIn, Ingress: 7, Len: 9, Shown: 3}, []byte("in.padding"))
}

// decided takes the record of a verdict.
func (j *joiner) decided(id, at uint64, reason bpfobj.PipelineReason, egress uint32) *Packet {
	r := bpfobj.CaptureCaptureRecord{Time: at, Id: id, Kind: recordOut, Reason: uint32(reason), Ingress: 7, Egress: egress, Len: 11}
	if egress != 0 {
		r.Shown = 4
	}
	return j.add(r, []byte("out.padding"))
}

// TestJoinPackets joins records of several packets, which are mixed.
func TestJoinPackets(t *testing.T) {
	j := testJoiner()
	for n := range uint64(3) {
		if p := j.cameIn(n, 10+n); p != nil {
			t.Fatalf("packet %+v without a verdict", p)
		}
	}
	p := j.decided(2, 5e9+1, bpfobj.PipelineReasonDROP_FILTER, 0)
	if p == nil || p.ID != 2 || p.In == nil || p.Out != nil || p.Words() != "drop filter" || p.Verdict() != datapath.VerdictDrop ||
		!p.Decided.Equal(time.Unix(1005, 1)) || p.Limited {
		t.Fatalf("got %+v", p)
	}
	if f := p.In; !f.Time.Equal(time.Unix(1000, 12)) || f.Interface != 7 || f.Length != 9 || string(f.Data) != "in." {
		t.Errorf("came in as %+v", f)
	}
	p = j.decided(0, 20, bpfobj.PipelineReasonFWD_ROUTE, 8)
	if p == nil || p.ID != 0 || p.In == nil || p.Out == nil || p.Out.Interface != 8 || p.Out.Length != 11 || string(p.Out.Data) != "out." ||
		p.Words() != "fwd route" || !p.came().Equal(time.Unix(1000, 10)) {
		t.Errorf("got %+v", p)
	}
	// One that is shown as it goes out only.
	p = j.decided(77, 30, bpfobj.PipelineReasonFWD_ROUTE, 8)
	if p == nil || p.In != nil || p.Out == nil || !p.came().Equal(time.Unix(1000, 30)) {
		t.Errorf("got %+v", p)
	}
	if len(j.pending) != 1 || j.pending[1] == nil {
		t.Errorf("%d packets wait, want one", len(j.pending))
	}
}

// TestJoinLimited has a punt that was dropped because it was over its rate.
func TestJoinLimited(t *testing.T) {
	reason := bpfobj.PipelineReasonPUNT_SCION_MAC
	j := testJoiner()
	if p := j.decided(1, 1, reason, 0); p.Verdict() != datapath.VerdictPunt || p.Limited || p.Words() != "punt scion-mac" {
		t.Errorf("got %+v, %q", p, p.Words())
	}
	p := j.decided(2, 1, reason+bpfobj.PipelineReason(bpfobj.ReasonCount), 0)
	if !p.Limited || p.Verdict() != datapath.VerdictDrop || p.Words() != "drop scion-mac, a punt over its rate" {
		t.Errorf("got %+v, %q", p, p.Words())
	}
}

// TestJoinEnqueued has a packet that a worker shows once more.
func TestJoinEnqueued(t *testing.T) {
	j := testJoiner()
	j.cameIn(1, 1)
	j.cameIn(1<<16|1, 3) // the worker is faster than the CPU that has enqueued
	if p := j.add(bpfobj.CaptureCaptureRecord{Time: 2, Id: 1, Kind: recordEnqueued}, nil); p != nil {
		t.Errorf("got %+v", p)
	}
	if p := j.decided(1<<16|1, 4, bpfobj.PipelineReasonFWD_ROUTE, 8); p == nil || p.In == nil || len(j.pending) != 0 {
		t.Errorf("got %+v, %d wait", p, len(j.pending))
	}
	if p := j.add(bpfobj.CaptureCaptureRecord{Time: 2, Id: 9, Kind: recordEnqueued}, nil); p != nil {
		t.Errorf("got %+v", p)
	}
}

// TestJoinLostVerdicts loses the verdicts of most packets. Only so many of them wait, the newest.
func TestJoinLostVerdicts(t *testing.T) {
	j := testJoiner()
	const packets = 10 * maxPending
	verdicts := uint64(0)
	for id := range uint64(packets) {
		j.cameIn(id, id)
		if id%5 == 0 {
			if p := j.decided(id, id, bpfobj.PipelineReasonFWD_ROUTE, 8); p == nil || p.In == nil {
				t.Fatalf("packet %d: %+v", id, p)
			}
			verdicts++
		}
		if len(j.pending) > maxPending || len(j.order) > 4*maxPending+1 {
			t.Fatalf("%d packets wait, %d in order", len(j.pending), len(j.order))
		}
	}
	if j.lost+uint64(len(j.pending))+verdicts != packets {
		t.Errorf("%d verdicts lost, %d wait, %d came, of %d", j.lost, len(j.pending), verdicts, packets)
	}
	if p := j.decided(packets-1, packets, bpfobj.PipelineReasonDROP_FILTER, 0); p == nil || p.In == nil {
		t.Errorf("the last packet has not waited: %+v", p)
	}
	if p := j.decided(1, packets, bpfobj.PipelineReasonDROP_FILTER, 0); p == nil || p.In != nil {
		t.Errorf("the first packet has waited: %+v", p)
	}
}

// TestWanted selects packets by what happened to them.
func TestWanted(t *testing.T) {
	j := testJoiner()
	j.cameIn(1, 1)
	dropped := j.decided(1, 2, bpfobj.PipelineReasonDROP_FILTER, 0)
	j.cameIn(2, 1)
	forwarded := j.decided(2, 2, bpfobj.PipelineReasonFWD_ROUTE, 8)
	lost := j.decided(3, 2, bpfobj.PipelineReasonDROP_FILTER, 0) // its record of the way in is lost
	for _, tt := range []struct {
		o                        Options
		dropped, forwarded, lost bool
	}{
		{Options{In: true, Out: true}, true, true, false},
		{Options{In: true}, true, true, false},
		{Options{Out: true}, false, true, false},
		{Options{In: true, Verdict: "drop"}, true, false, false},
		{Options{In: true, Verdict: "fwd"}, false, true, false},
		{Options{In: true, Reason: "route"}, false, true, false},
		{Options{In: true, Stage: "filter"}, true, false, false},
		{Options{In: true, Stage: "filter", Verdict: "fwd"}, false, false, false},
	} {
		if d, f, l := tt.o.wanted(dropped), tt.o.wanted(forwarded), tt.o.wanted(lost); d != tt.dropped || f != tt.forwarded || l != tt.lost {
			t.Errorf("%+v: the dropped packet %v, the forwarded one %v, one without a frame %v", tt.o, d, f, l)
		}
	}
}
