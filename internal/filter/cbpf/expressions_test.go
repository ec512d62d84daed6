// SPDX-License-Identifier: Apache-2.0

package cbpf_test

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/pcap"
)

// compileAll compiles cbpftest.Expressions, and returns libpcap's judges of them too.
func compileAll(t *testing.T) (programs []cbpf.Program, judges []*pcap.Judge) {
	t.Helper()
	for _, e := range cbpftest.Expressions {
		p, err := pcap.Compile(e)
		if err != nil {
			t.Fatal(err)
		}
		j, err := pcap.NewJudge(p)
		if err != nil {
			t.Fatal(err)
		}
		programs, judges = append(programs, p), append(judges, j)
	}
	return programs, judges
}

// compare ends the test if a verdict differs from libpcap's.
func compare(t *testing.T, names []string, judges []*pcap.Judge, frame, verdicts []byte) {
	t.Helper()
	for i, j := range judges {
		want := j.Match(frame, len(frame))
		if v := verdicts[i]; v == 0 || v > short || (v == matched) != want {
			t.Errorf("%q: libpcap matches: %v, the verdict is %d\nframe of %d bytes: %s", names[i], want, v, len(frame),
				hex.EncodeToString(frame[:min(len(frame), 200)]))
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestExpressions compares the verdicts of all expressions, translated in each way, with libpcap's.
func TestExpressions(t *testing.T) {
	programs, judges := compileAll(t)
	matches, others := make([]int, len(programs)), make([]int, len(programs))
	var rounds []func(int) variant
	for _, v := range variants {
		if !v.slot {
			rounds = append(rounds, func(int) variant { return v })
			continue
		}
		for part := range 4 { // that many programs are too much code for one, each of them with all its loads
			rounds = append(rounds, func(i int) variant {
				if i%4 == part {
					return v
				}
				return variants[0]
			})
		}
	}
	for round, as := range rounds {
		c := newHarness(t, programs, as)
		rng := rand.New(rand.NewPCG(5, uint64(round)))
		for _, frame := range cbpftest.Frames(rng, *frameCount) {
			verdicts := c.judge(t, frame)
			compare(t, cbpftest.Expressions, judges, frame, verdicts)
			for i, v := range verdicts {
				if v == matched {
					matches[i]++
				} else {
					others[i]++
				}
			}
		}
	}
	for i, e := range cbpftest.Expressions {
		if *frameCount >= 2000 && (matches[i] == 0 || others[i] == 0 && e != "") {
			t.Errorf("%q: %d frames match, %d do not: want some of both", e, matches[i], others[i])
		}
	}
}

// TestTruncated compares the verdicts on frames truncated at each byte with libpcap's.
func TestTruncated(t *testing.T) {
	programs, judges := compileAll(t)
	c := newHarness(t, programs, func(i int) variant { return variants[i%len(variants)] })
	rng := rand.New(rand.NewPCG(6, 6))
	for range *frameCount / 40 {
		frame := cbpftest.Frame(rng)
		for n := cbpftest.MinFrame; n < min(len(frame), 150); n++ {
			compare(t, cbpftest.Expressions, judges, frame[:n], c.judge(t, frame[:n]))
		}
	}
}

// TestSeveralBuffers compares the verdicts on frames in several buffers with libpcap's, wherever the first buffer ends.
func TestSeveralBuffers(t *testing.T) {
	programs, judges := compileAll(t)
	names := append([]string{}, cbpftest.Expressions...)
	for _, e := range []string{"ether[3400:4] & 1 = 1", "ether[3600:2] & 0x101 = 0x100", "ether[4100] & 1 = 1",
		"ether[8000:4] > 0x80000000", "ether[len - 4:4] > 0x80000000", "ether[ether[14:2] & 0x1fff] & 1 = 0",
		"ether[(ether[14:2] & 0x7fff):4] & 1 = 0", "ether[ether[14:2]:2] & 1 = 0", "ether[40000] & 1 = 1"} {
		p, err := pcap.Compile(e)
		if err != nil {
			t.Fatal(err)
		}
		j, err := pcap.NewJudge(p)
		if err != nil {
			t.Fatal(err)
		}
		names, programs, judges = append(names, e), append(programs, p), append(judges, j)
	}
	c := newHarness(t, programs, func(i int) variant { return variants[i%len(variants)] })
	rng := rand.New(rand.NewPCG(7, 7))
	for range *frameCount / 10 {
		frame := append(cbpftest.Frame(rng), make([]byte, rng.IntN(50000))...)
		for i := 0; i < len(frame)-1500; i++ {
			frame[1500+i] = byte(rng.Uint32())
		}
		compare(t, names, judges, frame, c.judge(t, frame))
	}
	// Offsets around the end of the first buffer, which depends on the kernel.
	frame := make([]byte, 6000)
	for range *frameCount / 10 {
		for i := range frame {
			frame[i] = byte(rng.Uint32())
		}
		frame[14], frame[15] = 12, 0
		frame[14] += byte(rng.IntN(4)) // 3072 to 4095
		compare(t, names, judges, frame, c.judge(t, frame))
	}
	if !anyFirstBuffer(t, c) {
		t.Log("this kernel's test runs always fill the first buffer")
		return
	}
	for _, frame := range cbpftest.Frames(rng, *frameCount) {
		first := min(len(frame), cbpftest.MinFrame+rng.IntN(60))
		compare(t, names, judges, frame, c.linear(t, frame, first))
	}
}

// anyFirstBuffer tells whether a test run can have a first buffer of any length.
func anyFirstBuffer(t *testing.T, c *harness) bool {
	t.Helper()
	_, err := c.Run.Run(&ebpf.RunOptions{Data: make([]byte, 60), Context: bpfobj.XDPMD{DataEnd: 20}})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	return err == nil
}
