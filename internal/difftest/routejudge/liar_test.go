// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"bytes"
	"testing"
)

// honest is a fast path that does what the kernel does, as far as a fast path can.
func honest(p *packet, kernel *outcome) fate {
	switch {
	case mustTake(p, kernel):
		return fate{xdpRedirect, kernel.forwards[0].frame}
	case len(kernel.forwards) == 0 && len(kernel.answers) == 0:
		return fate{xdpDrop, p.frame}
	}
	return fate{xdpPass, p.frame}
}

// lying changes what an honest fast path forwards.
func lying(change func(p *packet, frame []byte) []byte) fastPath {
	return func(p *packet, kernel *outcome) fate {
		f := honest(p, kernel)
		if f.action == xdpRedirect {
			f.frame = change(p, bytes.Clone(f.frame))
		}
		return f
	}
}

// TestJudge checks that the judge accepts an honest fast path, and rejects liars.
func TestJudge(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	g := newGenerator(2)
	w.ip(g.nexthopObjects() + g.fill(300))
	c := newJudge(t, w, g)
	c.all(100, honest)
	c.report()
	for _, class := range []struct {
		name string
		of   func(*tally) int
	}{
		{"forwarded", func(n *tally) int { return n.forwarded }}, {"answered", func(n *tally) int { return n.answered }},
		{"ignored", func(n *tally) int { return n.ignored }}, {"taken", func(n *tally) int { return n.fast }},
	} {
		sum := 0
		for _, n := range c.tallies {
			sum += class.of(n)
		}
		if sum < 100 {
			t.Errorf("only %d packets were %s", sum, class.name)
		}
	}
	pass := func(p *packet) fate { return fate{xdpPass, p.frame} }
	for _, liar := range []struct {
		what string
		fast fastPath
	}{
		{"passes everything", func(p *packet, _ *outcome) fate { return pass(p) }},
		{"drops everything", func(p *packet, _ *outcome) fate { return fate{xdpDrop, p.frame} }},
		{"aborts", func(p *packet, _ *outcome) fate { return fate{xdpAborted, p.frame} }},
		{"changes what it passes", func(p *packet, k *outcome) fate {
			f := honest(p, k)
			if f.action == xdpPass {
				f.frame = append(bytes.Clone(f.frame), 0)
			}
			return f
		}},
		{"drops what is answered", func(p *packet, k *outcome) fate {
			if len(k.answers) > 0 {
				return fate{xdpDrop, p.frame}
			}
			return honest(p, k)
		}},
		{"forwards what is answered", func(p *packet, k *outcome) fate {
			if len(k.answers) > 0 {
				return fate{xdpRedirect, p.frame}
			}
			return honest(p, k)
		}},
		{"forwards what is ignored", func(p *packet, k *outcome) fate {
			if len(k.forwards)+len(k.answers) == 0 {
				return fate{xdpRedirect, p.frame}
			}
			return honest(p, k)
		}},
		{"forwards whole what is broken up", func(p *packet, k *outcome) fate {
			if len(k.forwards) > 1 {
				return fate{xdpRedirect, k.forwards[0].frame}
			}
			return honest(p, k)
		}},
		{"uses the port without culvert", func(p *packet, k *outcome) fate {
			if len(k.forwards) == 1 && k.forwards[0].port == portWithoutXDP {
				return fate{xdpRedirect, k.forwards[0].frame}
			}
			return honest(p, k)
		}},
		{"leaves the hop limit", lying(func(p *packet, f []byte) []byte { return append(f[:14], p.frame[14:]...) })},
		{"sends to another neighbor", lying(func(_ *packet, f []byte) []byte {
			f[5]++
			return f
		})},
		{"sends by another port", lying(func(_ *packet, f []byte) []byte {
			f[11]++
			return f
		})},
		{"leaves trailing bytes", lying(func(p *packet, f []byte) []byte {
			return append(f, p.frame[min(len(f), len(p.frame)):]...)
		})},
		{"pads too much", lying(func(_ *packet, f []byte) []byte {
			return append(f, make([]byte, max(1, smallest+1-len(f)))...)
		})},
		{"cuts a byte off", lying(func(_ *packet, f []byte) []byte { return f[:len(f)-1] })},
	} {
		c := newJudge(t, w, g)
		c.all(80, liar.fast)
		if len(c.counts) == 0 {
			t.Errorf("a fast path that %s is not found out", liar.what)
		}
	}
}
