// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"math/bits"

	"golang.org/x/net/bpf"
)

// order is how A is held. A value from the packet that is only masked and compared with constants stays in network
// order, and the constants are turned instead.
type order uint8

const (
	orderNone order = iota // not known yet
	orderHost
	orderNet16
	orderNet32
)

// orders finds, for each load, whether it may leave A in network order, and then how A is held at each
// instruction. Where two orders would meet, A is asked for in host order, and all is found again.
func (f *flow) orders() {
	forced := make([]bool, len(f.p))
	for {
		f.loadOrders(forced)
		if !f.spread(forced) {
			return
		}
	}
}

// loadOrders sets raw: no instruction that may see the loaded value needs it in host order.
func (f *flow) loadOrders(forced []bool) {
	f.raw = make([]bool, len(f.p))
	need := make([]bool, len(f.p)+1)
	for i := len(f.p) - 1; i >= 0; i-- {
		if f.to[i] != (dest{at: i}) {
			continue
		}
		after := false
		for _, d := range f.next(i) {
			after = after || d.label == "" && need[d.at]
		}
		ins := f.p[i]
		f.raw[i] = isPacketLoad(ins) && class(ins) == classLD && size(ins) > 1 && !after
		need[i] = forced[i] || f.needsHost(ins, after)
	}
}

// needsHost tells whether A is needed in host order at an instruction; after is that of those behind it.
func (f *flow) needsHost(ins bpf.RawInstruction, after bool) bool {
	use, def := effect(ins)
	switch {
	case class(ins) == classRET: // zero is zero in any order
		return false
	case class(ins) == classJMP && !withX(ins) && (aluOp(ins) == jmpJEQ || aluOp(ins) == jmpJSET):
		return after
	case class(ins) == classALU && !withX(ins):
		switch aluOp(ins) {
		case aluAND:
			return after
		case aluOR, aluXOR:
			return after || ins.K > 0xffff
		}
		return true
	case use&liveA != 0:
		return true
	case def&liveA != 0:
		return false
	}
	return after
}

// spread finds how A is held at each instruction. It marks those where orders would meet, and tells if there are any.
func (f *flow) spread(forced []bool) (conflict bool) {
	f.order = make([]order, len(f.p))
	if start := f.to[0]; start.label == "" {
		f.order[start.at] = orderHost
	}
	for i, ins := range f.p {
		held := f.order[i]
		if f.to[i] != (dest{at: i}) || held == orderNone {
			continue
		}
		if _, def := effect(ins); def&liveA != 0 && class(ins) != classALU {
			held = orderHost
			if f.raw[i] {
				held = orderNet16
				if size(ins) == 4 {
					held = orderNet32
				}
			}
		}
		for _, d := range f.next(i) {
			if d.label != "" {
				continue
			}
			if at := &f.order[d.at]; *at == orderNone || f.live[d.at]&liveA == 0 {
				*at = held
			} else if *at != held {
				forced[d.at], conflict = true, true
			}
		}
	}
	return conflict
}

// constant turns a constant that A is masked or compared with into the order of A.
func (o order) constant(ins bpf.RawInstruction) int32 {
	k := ins.K
	switch o {
	case orderNet32:
		k = bits.ReverseBytes32(k)
	case orderNet16:
		// Equal to what does not fit is nothing, in any order.
		if k <= 0xffff || class(ins) == classALU || aluOp(ins) == jmpJSET {
			k = uint32(bits.ReverseBytes16(uint16(k)))
		}
	}
	return int32(k)
}
