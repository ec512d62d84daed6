// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// lie changes an outcome into a wrong one. It returns false if it does not apply.
type lie struct {
	name string
	tell func(tr trial, o *outcome) bool
}

func sends(o *outcome) bool { return strings.HasPrefix(o.reason, "fwd ") }

// flip changes the byte at an offset from the start of the frame or, if it is negative, from the end of its packet.
func flip(at int) func(trial, *outcome) bool {
	return func(_ trial, o *outcome) bool {
		v := decode(o.frame)
		if !sends(o) || v.ip == 0 {
			return false
		}
		i := at
		if at < 0 {
			i = v.l3 + len(v.packet) + at
		}
		o.frame[i] ^= 0x10
		return true
	}
}

var lies = []lie{
	{"not counted", func(_ trial, o *outcome) bool { o.counted = counter{}; return true }},
	{"counted twice", func(_ trial, o *outcome) bool { o.counted.Packets = 2; return true }},
	{"counted elsewhere too", func(_ trial, o *outcome) bool { o.others = 1; return true }},
	{"bytes", func(_ trial, o *outcome) bool { o.counted.Bytes++; return true }},
	{"aborted", func(_ trial, o *outcome) bool { o.action = 0; return true }},
	{"passed", func(_ trial, o *outcome) bool {
		if !sends(o) && o.action == xdpPass {
			return false
		}
		o.action = xdpPass
		return true
	}},
	{"dropped", func(_ trial, o *outcome) bool {
		if o.action == xdpDrop {
			return false
		}
		o.action = xdpDrop
		return true
	}},
	{"sent", func(_ trial, o *outcome) bool {
		if sends(o) {
			return false
		}
		o.action = xdpRedirect
		return true
	}},
	{"sent back", func(_ trial, o *outcome) bool { o.action = xdpTX; return !answers[o.reason] }},
	{"changed", func(_ trial, o *outcome) bool {
		if sends(o) || o.action != xdpPass {
			return false
		}
		o.frame[13] ^= 1
		return true
	}},
	{"destination MAC", flip(1)},
	{"source MAC", flip(7)},
	{"last byte", flip(-1)},
	{"cut", func(_ trial, o *outcome) bool {
		v := decode(o.frame)
		if !sends(o) || v.ip == 0 {
			return false
		}
		o.frame = o.frame[:v.l3+len(v.packet)-1]
		return true
	}},
	{"TTL", func(tr trial, o *outcome) bool {
		v := decode(o.frame)
		if !sends(o) || v.ip == 0 {
			return false
		}
		at := map[int]int{4: 8, 6: 7}[v.ip]
		v.packet[at]++
		if v.ip == 4 {
			v.packet[10], v.packet[11] = 0, 0
			be.PutUint16(v.packet[10:], ^sum(v.packet[:v.head]))
		}
		// Between the two ends of a link of SCION's any will do.
		return !strings.HasPrefix(o.reason, "fwd scion")
	}},
	{"checksum of IPv4", func(_ trial, o *outcome) bool {
		v := decode(o.frame)
		if !sends(o) || v.ip != 4 {
			return false
		}
		v.packet[10] ^= 0x40
		return true
	}},
	{"not sent at all", func(tr trial, o *outcome) bool {
		if !sends(o) || strings.Contains(o.reason, "filter") || tr.first > 0 {
			return false
		}
		in := decode(tr.frame)
		if _, _, ok := in.ports(); !ok || in.frag || len(in.tags) > 0 || strings.Contains(o.reason, "scion") || in.proto != in.l4proto {
			return false
		}
		o.reason, o.action, o.frame = "pass other", xdpPass, bytes.Clone(tr.frame)
		return true
	}},
	{"past the filter", func(tr trial, o *outcome) bool {
		if o.reason != "drop filter" {
			return false
		}
		o.reason, o.action, o.frame = "pass other", xdpPass, bytes.Clone(tr.frame)
		return true
	}},
	{"filtered", func(_ trial, o *outcome) bool {
		if o.reason == "drop filter" {
			return false
		}
		o.reason, o.action = "drop filter", xdpDrop
		return true
	}},
	{"blackhole", func(_ trial, o *outcome) bool {
		if o.reason == "drop route-blackhole" || strings.Contains(o.reason, "filter") {
			return false
		}
		o.reason, o.action = "drop route-blackhole", xdpDrop
		return true
	}},
	{"routed", func(tr trial, o *outcome) bool {
		if strings.HasPrefix(o.reason, "fwd") {
			return false
		}
		o.reason, o.action = "fwd route", xdpRedirect
		return true
	}},
	{"balanced", func(tr trial, o *outcome) bool {
		if strings.HasPrefix(o.reason, "fwd lb-") {
			return false
		}
		o.reason, o.action = "fwd lb-flow", xdpRedirect
		return true
	}},
	{"SCION", func(tr trial, o *outcome) bool {
		if strings.Contains(o.reason, "scion") {
			return false
		}
		o.reason, o.action = "fwd scion-in", xdpRedirect
		return true
	}},
}

// TestLies checks that the models reject right outcomes after a change.
func TestLies(t *testing.T) {
	b := newBed(t, allStages)
	told := make(map[string]int)
	lies := slices.Concat(lies, b.reasonLies())
	for n, tr := range b.lieCorpus(rand.New(rand.NewPCG(trialSeed, 5))) {
		truth, err := b.try(tr)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lies {
			o := truth
			o.frame = bytes.Clone(truth.frame)
			if !l.tell(tr, &o) {
				continue
			}
			told[l.name]++
			if err := b.do(func() error { return b.check(tr, o) }); err == nil {
				t.Errorf("trial %d, %s: the lie %q was believed\nin:  %x\nout: %x", n, truth.reason, l.name, tr.frame[:min(len(tr.frame), 200)], o.frame[:min(len(o.frame), 200)])
			}
		}
	}
	for _, l := range lies {
		if told[l.name] < 10 {
			t.Errorf("the lie %q was told %d times", l.name, told[l.name])
		}
	}
}
