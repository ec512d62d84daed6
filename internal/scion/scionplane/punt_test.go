// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestLimitedPunts checks that packets which a limit keeps from the slow path are counted where the reference counts those
// that its slow path is too busy for, and nowhere else.
func TestLimitedPunts(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	out := testbed.AddVeth(t, "b0", "b1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "a0", "b0")
	scionbed.Open(t, inst, out)
	frame := scionbed.TransitFrame(t, in, scionplane.Key{0xff}) // a key that is not loaded
	// The limit passes two packets, however long the test takes: one of them by the link's own limit.
	limit := bpfobj.PipelineLimit{Interval: 1 << 58, Burst: 0}
	if err := inst.Map(bpfobj.PipelineMapLimits).Put(bpfobj.PipelineReasonPUNT_SCION_MAC.Index(), limit); err != nil {
		t.Fatal(err)
	}
	const sent, passes = 50, 2
	testbed.Feed(t, inst, frame, "a0", sent)
	port, _, total := testbed.Counted(t, inst, "a0")
	passed := make(map[bool]uint64)
	for _, r := range port.Reasons {
		if r.Name == "scion-mac" {
			passed[!r.Limited] += r.Packets
		}
	}
	if total != sent || passed[true] != passes || passed[false] != sent-passes {
		t.Errorf("%d packets counted, %v", total, port.Reasons)
	}
	links, err := inst.LinkCounters()
	if err != nil {
		t.Fatal(err)
	}
	l := links[scionbed.LinkIndex(t, inst.Config(), "1")]
	var received, limited, dropped uint64
	for class := range l.In {
		received += l.In[class].Packets
		limited += l.Limited[class]
		dropped += l.Dropped[class]
	}
	// The slow path counts the packets that were passed up.
	if received != sent-passes || limited != sent-passes || dropped != 0 {
		t.Errorf("link 1: received %d, limited %d, dropped %d", received, limited, dropped)
	}
}

// TestFramesOfSeveralBuffers checks that a frame of several buffers is passed up, and not redirected, if the device of the
// next hop does not accept it.
func TestFramesOfSeveralBuffers(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	out := testbed.AddVeth(t, "b0", "b1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "a0", "b0")
	scionbed.Open(t, inst, out)
	small, large := scionbed.TransitFrame(t, in, scionbed.Key), scionbed.SizedTransitFrame(t, in, scionbed.Key, 8000)
	hop := scionplane.NextHop{IfIndex: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 9000}
	for _, c := range []struct {
		name       string
		linearOnly bool
		frame      []byte
		forwarded  bool
	}{
		{"one buffer, any device", false, small, true},
		{"several buffers, device that accepts them", false, large, true},
		{"one buffer, device that accepts no more", true, small, true},
		{"several buffers, device that accepts one", true, large, false},
	} {
		hop.LinearOnly = c.linearOnly
		if err := inst.SetLinkNextHop(scionbed.LinkIndex(t, inst.Config(), "2"), hop); err != nil {
			t.Fatal(err)
		}
		action, after, err := inst.TestRunIndex(c.frame, in.Index)
		if err != nil {
			t.Fatal(err)
		}
		if (action == 4) != c.forwarded {
			t.Errorf("%s: action %d, want forwarded %v", c.name, action, c.forwarded)
		}
		if counted := puntedBuffers(t, inst); counted != !c.forwarded {
			t.Errorf("%s: counted as punt scion-buffers: %v", c.name, counted)
		}
		if !c.forwarded && !bytes.Equal(after, c.frame) {
			t.Errorf("%s: the frame was passed up changed", c.name)
		}
	}
}

// puntedBuffers tells whether a frame was passed up as scion-buffers.
func puntedBuffers(t *testing.T, inst scionplane.Plane) bool {
	t.Helper()
	ports, err := inst.Ports()
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		for _, r := range port.Reasons {
			if r.Verdict == "punt" && r.Name == "scion-buffers" && r.Packets > 0 {
				return true
			}
		}
	}
	return false
}

// TestBFDFromInsideIsNotTheSessions checks that BFD packets from inside the AS have another reason than those of the
// links' sessions, and so use up none of their limit.
func TestBFDFromInsideIsNotTheSessions(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	inst := scionbed.Attach(t, scionbed.Config(1), "a0")
	const (
		protocol = scionpkt.EthernetLen + scionpkt.IPv4Len + scionpkt.UDPLen + 4 // next header
		pathType = protocol + 4
		srcIP    = scionpkt.EthernetLen + 12
		dstIP    = srcIP + 4
		dstPort  = scionpkt.EthernetLen + scionpkt.IPv4Len + 2
	)
	for _, c := range []struct {
		name   string
		inside bool
		path   byte
		want   string
	}{
		{"link, one-hop path", false, 2, "punt scion-bfd"},
		{"link, empty path", false, 0, "punt scion-bfd"},
		{"inside, one-hop path", true, 2, "punt scion-onehop"},
		{"inside, empty path", true, 0, "punt scion-empty"},
	} {
		frame := scionbed.TransitFrame(t, in, scionbed.Key)
		frame[protocol], frame[pathType] = 203, c.path
		if c.inside {
			internal := inst.Config().Links[0].Local
			copy(frame[srcIP:], []byte{192, 0, 2, 77})
			copy(frame[dstIP:], internal.Addr().AsSlice())
			binary.BigEndian.PutUint16(frame[dstPort:], internal.Port())
			scionpkt.FixOuter(frame)
		}
		_, before, _ := testbed.Counted(t, inst, "a0")
		testbed.Feed(t, inst, frame, "a0", 1)
		if _, after, _ := testbed.Counted(t, inst, "a0"); after[c.want] != before[c.want]+1 {
			t.Errorf("%s: %v, then %v, want one more %s", c.name, before, after, c.want)
		}
	}
}
