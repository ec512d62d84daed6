// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
)

// Offsets of the kernel's that are no places in a packet (linux/filter.h, SKF_*).
const (
	linkOffset      = 0xffe00000
	networkOffset   = 0xfff00000
	ancillaryOffset = 0xfffff000
)

// unseen says what the kernel's ancillary loads ask for, by their offset (SKF_AD_*). libpcap uses those of
// inbound, outbound, ifindex, and vlan on a device.
var unseen = map[uint32]string{
	0:  "the protocol that the kernel has noted",
	4:  "the direction of a packet (inbound, outbound): all that it gets comes in",
	8:  "the number of the interface (ifindex): give the rule an interface",
	20: "the packet's mark",
	24: "the queue of the packet",
	28: "the hardware type of the interface",
	32: "the hash of the packet",
	36: "the CPU's number",
	44: vlanUnseen,
	48: vlanUnseen,
	52: "where the kernel has found the payload",
	56: "random numbers",
	60: vlanUnseen,
}

const vlanUnseen = "a VLAN tag that the card has taken off (vlan, compiled for a device): leave tags in the frame and " +
	"give the expression itself, or compile it for a file (tcpdump -r FILE -ddd vlan)"

// Check refuses a program that libpcap (bpf_validate) or the kernel (bpf_check_classic) would refuse, and one that
// asks for what XDP cannot see. Instructions are numbered from 0, as tcpdump -d does.
func (p Program) Check() error {
	if len(p) == 0 {
		return errors.New("the program is empty: it has to end in ret")
	}
	if len(p) > MaxInstructions {
		return fmt.Errorf("the program has %d instructions: at most %d are possible", len(p), MaxInstructions)
	}
	for i, ins := range p {
		if err := p.checkInstruction(i, ins); err != nil {
			return fmt.Errorf("instruction %d: %w", i, err)
		}
	}
	if last := len(p) - 1; class(p[last]) != classRET {
		return fmt.Errorf("instruction %d: the last instruction has to be ret", last)
	}
	return nil
}

func (p Program) checkInstruction(i int, ins bpf.RawInstruction) error {
	if ins.Op > 0xff || !known[ins.Op] {
		return fmt.Errorf("there is no operation with the code %#x", ins.Op)
	}
	left := uint32(len(p) - i - 1)
	switch class(ins) {
	case classLD, classLDX:
		if mode(ins) == modeMEM && ins.K >= memWords {
			return fmt.Errorf("the word M[%d] is beyond M[%d]", ins.K, memWords-1)
		}
		if class(ins) == classLD && (mode(ins) == modeABS || mode(ins) == modeIND) {
			return checkOffset(ins)
		}
	case classST, classSTX:
		if ins.K >= memWords {
			return fmt.Errorf("the word M[%d] is beyond M[%d]", ins.K, memWords-1)
		}
	case classALU:
		return checkConstant(ins)
	case classJMP:
		if ins.Op != opJA {
			if uint32(ins.Jt) >= left || uint32(ins.Jf) >= left {
				return errors.New("it jumps beyond the end of the program")
			}
			return nil
		}
		if int32(ins.K) < 0 {
			return errors.New("it jumps backwards (protochain does): loops are not possible in the kernel")
		}
		if ins.K >= left {
			return errors.New("it jumps beyond the end of the program")
		}
	}
	return nil
}

// checkOffset refuses places that only the kernel's socket filters have.
func checkOffset(ins bpf.RawInstruction) error {
	switch {
	case ins.K >= ancillaryOffset:
		what, ok := unseen[ins.K-ancillaryOffset]
		if !ok {
			what = fmt.Sprintf("what is at offset %d", int32(ins.K))
		}
		return fmt.Errorf("it asks for what XDP cannot see: %s", what)
	case ins.K >= linkOffset:
		kind := "link"
		if ins.K >= networkOffset {
			kind = "network"
		}
		return fmt.Errorf("it asks for what XDP cannot see: offset %d, from where the kernel has found the %s header",
			int32(ins.K), kind)
	}
	return nil
}

func checkConstant(ins bpf.RawInstruction) error {
	if withX(ins) {
		return nil
	}
	switch op := aluOp(ins); {
	case (op == aluDIV || op == aluMOD) && ins.K == 0:
		return errors.New("it divides by 0")
	case (op == aluLSH || op == aluRSH) && ins.K > 31:
		return fmt.Errorf("it shifts by %d bits: a word has 32", ins.K)
	}
	return nil
}
