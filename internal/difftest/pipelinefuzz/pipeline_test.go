// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"

	"culvert/internal/datapath"
)

// trialSeed determines all frames of the trials, except timestamps of SCION packets, which follow the clock.
const trialSeed = 14

var trials = flag.Int("trials", 12_000, "how many frames TestPipeline tries")

// corpus returns the trials from which others are made: all seeds, and SCION packets.
func (b *bed) corpus(rng *rand.Rand, scion int) (all []trial) {
	for _, s := range b.seeds() {
		all = append(all, s.trial(b.net))
	}
	for b.on.scion && scion > 0 {
		if tr, ok := b.scionFrame(rng); ok {
			all = append(all, tr)
			scion--
		}
	}
	return all
}

// Each seed must be counted under its reason, and there must be a seed for every reason.
func TestSeeds(t *testing.T) {
	b := newBed(t, allStages)
	for n, s := range b.seeds() {
		o, err := b.try(s.trial(b.net))
		if err != nil {
			t.Errorf("seed %d: %v", n, err)
		}
		if s.reason != "" && o.reason != s.reason {
			t.Errorf("seed %d: %+v left as %q, want %q", n, s.packet, o.reason, s.reason)
		}
	}
	rng := rand.New(rand.NewPCG(trialSeed, 1))
	for range 6000 {
		if tr, ok := b.scionFrame(rng); ok {
			if _, err := b.try(tr); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.fillTable(t)
	for _, r := range datapath.Reasons() {
		name := string(r.Verdict) + " " + r.Name
		if r.Name != "" && b.seen[name] == 0 {
			t.Errorf("no seed leaves as %s: there has to be one for each reason of bpf/core/reason.h", name)
		}
	}
}

// fillTable opens flows until the flow table is full.
func (b *bed) fillTable(t *testing.T) {
	t.Helper()
	for n := range 20_000 {
		p := packet{src: "198.51.100.9", dst: "192.0.2.4", proto: protoTCP, body: tcp(uint16(1024+n), uint16(n%5), 0x10, nil)}
		for range 2 { // the second packet marks the flow as open
			o, err := b.try(p.trial(b.net))
			if err != nil {
				t.Fatal(err)
			}
			if o.reason == "fwd lb-untracked" {
				return
			}
		}
	}
}

// TestPipeline tries frames that are made by a few changes from the seeds.
func TestPipeline(t *testing.T) {
	t.Logf("seed %d", trialSeed)
	b := newBed(t, allStages)
	rng := rand.New(rand.NewPCG(trialSeed, 2))
	all := b.corpus(rng, 400)
	choices := make([]byte, 40)
	for n := range *trials {
		for i := 0; i < len(choices); i += 8 {
			binary.LittleEndian.PutUint64(choices[i:], rng.Uint64())
		}
		tr := all[rng.IntN(len(all))]
		if n >= len(all) {
			tr = mutate(tr, &script{choices}, all)
		}
		if _, err := b.try(tr); err != nil {
			t.Fatalf("seed %d, frame %d: %v", trialSeed, n, err)
		}
	}
	least := map[string]int{"pass other": 100, "fwd route": 100, "fwd lb-flow": 100, "fwd scion-in": 20, "drop filter": 100}
	for reason, n := range least {
		if b.seen[reason] < n*(*trials)/20_000 {
			t.Errorf("only %d frames left as %s: %v", b.seen[reason], reason, b.seen)
		}
	}
	if len(b.seen) < 60 {
		t.Errorf("frames left for %d reasons alone: %v", len(b.seen), b.seen)
	}
}

// fuzz makes the fuzzer choose what is done to a frame. base picks the frame, and the rest is a script of mutate.
func fuzz(f *testing.F, on stages) {
	b := newBed(f, on)
	all := b.corpus(rand.New(rand.NewPCG(trialSeed, 3)), 200)
	for n := range all {
		f.Add(uint16(n), []byte{})
		f.Add(uint16(n), []byte{1, byte(n), byte(n >> 3), 3, 1, 3})
	}
	f.Fuzz(func(t *testing.T, base uint16, choices []byte) {
		tr := all[int(base)%len(all)]
		if len(choices) > 0 {
			tr = mutate(tr, &script{choices}, all)
		}
		if _, err := b.try(tr); err != nil {
			t.Error(err)
		}
	})
}

// FuzzPipeline looks for a frame that a stage treats wrongly, with all stages on.
func FuzzPipeline(f *testing.F) { fuzz(f, allStages) }

// FuzzFilter runs the filter alone, in front of a pipeline that passes everything.
func FuzzFilter(f *testing.F) {
	fuzz(f, stages{filter: true})
}

// FuzzRoute runs the IP router alone, with a mirror that asks the kernel for some destinations.
func FuzzRoute(f *testing.F) { fuzz(f, stages{route: true}) }

// FuzzFrames uses the fuzzer's bytes as a frame. how says what is fixed: the address, lengths and checksums.
func FuzzFrames(f *testing.F) {
	b := newBed(f, allStages)
	for n, tr := range b.corpus(rand.New(rand.NewPCG(trialSeed, 4)), 200) {
		f.Add(tr.frame, uint8(tr.in), uint8(n))
	}
	f.Fuzz(func(t *testing.T, frame []byte, in, how uint8) {
		if len(frame) < 14 || len(frame) > longest {
			return
		}
		tr := trial{frame: bytes.Clone(frame), in: int(in) % len(b.net.Devices)}
		if how&1 == 0 {
			copy(tr.frame, b.net.Devices[tr.in].MAC[:])
		}
		if how&2 != 0 {
			fixIP(tr.frame)
		}
		if how&4 != 0 {
			fixTransport(tr.frame)
		}
		if how&8 != 0 {
			tr.first = min(len(frame), 14+int(how>>4)*12)
		}
		if _, err := b.try(tr); err != nil {
			t.Error(err)
		}
	})
}
