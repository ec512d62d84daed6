// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"math/bits"

	"golang.org/x/net/bpf"
)

// order is the byte order of A. A value from the packet that is only masked and compared with constants stays in network order.
// The constants are swapped instead, at translation time.
type order uint8

const (
	orderNone order = iota // not yet known
	orderHost
	orderNet16
	orderNet32
)

// orders finds for each load whether it may leave A in network order, and the order of A at each instruction. An instruction
// that two paths reach with different orders gets A in host order. Then it starts again.
func (f *flow) orders() {
	forced := make([]bool, len(f.p))
	for {
		f.loadOrders(forced)
		if !f.spread(forced) {
			return
		}
	}
}

// loadOrders sets raw for the loads whose value no instruction needs in host order.
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
		need[i] = forced[i] || f.stores(i) || f.needsHost(ins, after)
	}
}

// needsHost tells whether A has to be in host order before an instruction. After tells the same of the instructions that may
// follow.
func (f *flow) needsHost(ins bpf.RawInstruction, after bool) bool {
	use, def := effect(ins)
	switch {
	case class(ins) == classRET: // 0 is the same in each order
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

// spread finds the order of A at each instruction. It sets forced for instructions that two paths reach with different orders, and
// tells whether there are any.
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

// constant returns the constant with which an instruction masks or compares A, in order o.
func (o order) constant(ins bpf.RawInstruction) int32 {
	k := ins.K
	switch o {
	case orderNet32:
		k = bits.ReverseBytes32(k)
	case orderNet16:
		// A half-word never equals a constant that does not fit into 16 bits. The constant is then left as it is.
		if k <= 0xffff || class(ins) == classALU || aluOp(ins) == jmpJSET {
			k = uint32(bits.ReverseBytes16(uint16(k)))
		}
	}
	return int32(k)
}
