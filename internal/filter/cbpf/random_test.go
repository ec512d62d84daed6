// SPDX-License-Identifier: Apache-2.0

package cbpf_test

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"time"

	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/pcap"
)

// tryRandom loads count programs from a source as one program, and compares their verdicts on frames with libpcap's. Most is the
// greatest number of instructions of a program. It returns how often each verdict was given.
func tryRandom(t *testing.T, s *cbpftest.Source, count, most int, frames [][]byte) (given [4]int) {
	t.Helper()
	programs, judges := make([]cbpf.Program, count), make([]*pcap.Judge, count)
	as := make([]variant, count)
	var err error
	for i := range programs {
		programs[i], as[i] = cbpftest.Program(s, most), variants[s.N(len(variants))]
		if judges[i], err = pcap.NewJudge(cbpftest.WithZeroes(programs[i])); err != nil {
			t.Fatalf("%v\n%s", err, programs[i])
		}
	}
	c := newHarness(t, programs, func(i int) variant { return as[i] })
	defer c.Close()
	parts := anyFirstBuffer(t, c)
	for _, frame := range frames {
		first := 0
		if parts && s.Rand.IntN(3) == 0 {
			first = min(len(frame), cbpftest.MinFrame+s.Rand.IntN(50))
		}
		for i, v := range c.linear(t, frame, first) {
			want := judges[i].Match(frame, len(frame))
			if v == 0 || v > short || (v == matched) != want {
				t.Fatalf("libpcap matches: %v, the verdict is %d\nvariant %+v\nframe of %d bytes, %d in the first buffer: %s\n%s", want,
					v, as[i], len(frame), first, hex.EncodeToString(frame), programs[i])
			}
			given[v]++
		}
	}
	return given
}

// TestRandomPrograms compares the verdicts of random programs with those of libpcap's interpreter.
func TestRandomPrograms(t *testing.T) {
	var given [4]int
	rounds := max(6, *frameCount/100)
	for round := range uint64(rounds) {
		s := &cbpftest.Source{Rand: rand.New(rand.NewPCG(8, round))}
		for v, n := range tryRandom(t, s, 64, 5+int(round), cbpftest.Frames(s.Rand, 120)) {
			given[v] += n
		}
	}
	t.Logf("%d matched, %d did not, %d were short", given[matched], given[unmatched], given[short])
	for v := matched; v <= short; v++ {
		if given[v] < 500*rounds {
			t.Errorf("verdict %d was given %d times, want at least %d", v, given[v], 500*rounds)
		}
	}
}

// FuzzTranslate looks for a program whose verdict differs from that of libpcap's interpreter. The script decides what the programs
// and the frames are; after its end the seed does.
func FuzzTranslate(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, []byte{}, []byte{})
		f.Add(seed, []byte{6, 1, 3, 12, 2, 0, 5}, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	}
	f.Fuzz(func(t *testing.T, seed uint64, script, frame []byte) {
		time.Sleep(3 * loadPause) // each load frees several programs
		s := &cbpftest.Source{Script: script, Rand: rand.New(rand.NewPCG(seed, 9))}
		frames := cbpftest.Frames(s.Rand, 40)
		if len(frame) >= cbpftest.MinFrame && len(frame) < 60000 {
			frames = append(frames, frame)
		}
		tryRandom(t, s, 32, 30, frames)
	})
}

// FuzzParse looks for a text whose program String does not write as Parse reads it, or that makes Check or Translate panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte("2\n48 0 0 0\n6 0 0 1\n"))
	f.Add([]byte("{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 1, 0x00000800 },\n{ 0x6, 0, 0, 0x00040000 },\n{ 0x6, 0, 0, 0 },\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := cbpf.Parse(text)
		if err != nil {
			return
		}
		again, err := cbpf.Parse([]byte(p.String()))
		if err != nil || again.String() != p.String() {
			t.Fatalf("%v: read again: %v", p, err)
		}
		if !cbpf.LooksRaw(text) {
			t.Fatalf("%q is a program and does not look like one", text)
		}
		code, err := p.Translate(cbpf.Options{Prefix: "p", Match: "match", NoMatch: "no", Short: "short", Stack: -64})
		if p.Check() == nil && (err != nil && code != nil) || p.Check() != nil && err == nil {
			t.Fatalf("%s: %v", p, err)
		}
	})
}
