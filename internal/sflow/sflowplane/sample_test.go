// SPDX-License-Identifier: Apache-2.0

package sflowplane

import (
	"math"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// TestSampling samples ten million packets at several rates. The number of samples of independent packets has a binomial distribution.
// The bounds are five standard deviations: a test fails once in two million runs by chance.
func TestSampling(t *testing.T) {
	testbed.InNamespace(t)
	west := testbed.AddVeth(t, "west", "westp")
	const packets = 10_000_000
	for _, rate := range []int{1, 2, 3, 100, 1000, 65536} {
		repeat := packets
		if rate < 100 {
			repeat /= 10 // a sample takes longer than a packet
		}
		part := NewPart(Options{Rate: rate, Header: 128})
		inst, err := datapath.Attach(datapath.Options{Name: "sampled", Interfaces: []string{"west"}, Temporary: true, Parts: []datapath.Part{part}})
		if err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 64)
		_, err = inst.Program().Run(&ebpf.RunOptions{
			Data: frame, Repeat: uint32(repeat), Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(west.Index)},
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := ReadCounted(inst)
		if err != nil {
			t.Fatal(err)
		}
		p := 1 / float64(rate)
		mean, bound := float64(repeat)*p, 5*math.Sqrt(float64(repeat)*p*(1-p))
		t.Logf("1 in %d: %d of %d packets, want %.0f ± %.0f; %d lost", rate, c.Samples, repeat, mean, bound, c.Lost)
		if math.Abs(float64(c.Samples)-mean) > bound {
			t.Errorf("1 in %d: %d of %d packets were sampled, want %.0f ± %.0f", rate, c.Samples, repeat, mean, bound)
		}
		if c.Pool > uint64(repeat) || c.Pool+uint64(25*rate) < uint64(repeat) {
			t.Errorf("1 in %d: a pool of %d, after %d packets", rate, c.Pool, repeat)
		}
		part.Close()
		inst.Close()
	}
}
