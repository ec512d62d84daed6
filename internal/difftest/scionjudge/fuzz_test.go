// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"culvert/internal/scion/scionpkt"
)

// fuzzBed has the judge and the data plane of one network for a whole fuzzing process. The data plane is in a
// network namespace that only one thread is in, and each fuzz call runs on another thread. So one goroutine that is locked
// to that thread runs the trials of all calls.
type fuzzBed struct {
	trial Trial
	calls chan func()
}

func newFuzzBed(f *testing.F, mix int) *fuzzBed {
	f.Helper()
	rng := rand.New(rand.NewPCG(uint64(mix), 3))
	n := scionpkt.RandomNetwork(rng, scionpkt.Mixes()[mix], uint32(time.Now().Unix()))
	b := &fuzzBed{calls: make(chan func())}
	b.trial = Trial{Net: n, Judge: start(f, n)}
	ready, stopped := make(chan error), make(chan struct{})
	go func() {
		// The thread is not unlocked, so it ends with the goroutine, and the namespace ends with it.
		runtime.LockOSThread()
		defer close(stopped)
		ns, err := netns.New()
		if err != nil {
			ready <- err
			return
		}
		defer ns.Close()
		x, err := NewXDP(n, false)
		b.trial.Fast = x
		ready <- err
		if err != nil {
			return
		}
		for call := range b.calls {
			call()
		}
		_ = x.Close()
	}()
	if err := <-ready; err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		close(b.calls)
		<-stopped
	})
	return b
}

// try compares both sides on a frame.
func (b *fuzzBed) try(s *scionpkt.Spec, frame []byte, damage string) (err error) {
	done := make(chan struct{})
	b.calls <- func() {
		defer close(done)
		err = b.trial.Try(s, frame, damage)
	}
	<-done
	return err
}

// FuzzRouter looks for a frame on which the program in the kernel and the reference differ. The seed selects a network and
// a packet, and the script is one of scionpkt.Edit.
func FuzzRouter(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Fatal("this test makes network namespaces and loads eBPF programs: run it as root")
	}
	beds := make([]*fuzzBed, len(scionpkt.Mixes()))
	for i := range beds {
		beds[i] = newFuzzBed(f, i)
	}
	for seed := range uint64(60) {
		f.Add(seed, []byte{})
		// Flip a bit of the fields that the reference looks at first.
		f.Add(seed, []byte{0, 0, 4, 1})
		f.Add(seed, []byte{2, 0, byte(seed), 1, 0, byte(40 + seed), 1})
	}
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		b := beds[seed%uint64(len(beds))]
		rng := rand.New(rand.NewPCG(seed, 4))
		b.trial.Net.Now = uint32(time.Now().Unix())
		s := scionpkt.Random(rng, b.trial.Net)
		damage := ""
		if seed/uint64(len(beds))%3 == 2 {
			s, damage = scionpkt.Distort(rng, b.trial.Net, s)
		}
		frame, err := s.Build()
		if err != nil {
			return
		}
		if len(script) > 0 {
			frame, damage = scionpkt.Edit(frame, script), "edited"
			s.MustForward = false
		}
		if err := b.try(&s, frame, damage); err != nil {
			t.Errorf("%s, %s, damage: %q: %v\nframe: %s",
				s.Direction, s.Payload.Kind, damage, err, dump(frame))
		}
	})
}
