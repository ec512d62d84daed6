// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
)

// Special offsets of the kernel's socket filters, which are not offsets into the packet (linux/filter.h, SKF_*).
const (
	linkOffset      = 0xffe00000
	networkOffset   = 0xfff00000
	ancillaryOffset = 0xfffff000
)

// ancillary maps the offsets of ancillary loads (SKF_AD_*) to what they load. libpcap uses those for inbound, outbound and ifindex,
// and for vlan if it compiles for a device.
var ancillary = map[uint32]string{
	0:  "the protocol that the kernel has noted",
	4:  "the direction of a packet (inbound, outbound): a rule sees packets that come in, and a capture has --in and --out",
	8:  "the number of the interface (ifindex): give the rule an interface",
	20: "the packet's mark",
	24: "the queue of the packet",
	28: "the hardware type of the interface",
	32: "the hash of the packet",
	36: "the CPU's number",
	44: strippedTag,
	48: strippedTag,
	52: "where the kernel has found the payload",
	56: "random numbers",
	60: strippedTag,
}

const strippedTag = "a VLAN tag that the device has stripped (vlan, compiled for a device): leave tags in the frame and " +
	"give the expression itself, or compile it for a file (tcpdump -r FILE -ddd vlan)"

// Check returns an error if libpcap (bpf_validate) or the kernel (bpf_check_classic) would refuse the program, or if it loads what
// XDP cannot see. Errors number instructions from 0, as tcpdump -d does.
func (p Program) Check() error {
	if len(p) == 0 {
		return errors.New("the program is empty: it has to end with ret")
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

// checkOffset refuses offsets that only the kernel's socket filters know.
func checkOffset(ins bpf.RawInstruction) error {
	switch {
	case ins.K >= ancillaryOffset:
		what, ok := ancillary[ins.K-ancillaryOffset]
		if !ok {
			what = fmt.Sprintf("what is at offset %d", int32(ins.K))
		}
		return fmt.Errorf("it loads what XDP cannot see: %s", what)
	case ins.K >= linkOffset:
		kind := "link"
		if ins.K >= networkOffset {
			kind = "network"
		}
		return fmt.Errorf("it loads what XDP cannot see: offset %d, from where the kernel has found the %s header",
			int32(ins.K), kind)
	}
	return nil
}

// checkConstant refuses constants with which an ALU instruction has no result.
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
