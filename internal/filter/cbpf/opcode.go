// SPDX-License-Identifier: Apache-2.0

package cbpf

import "golang.org/x/net/bpf"

// Parts of an opcode (linux/bpf_common.h).
const (
	classLD   = 0x00
	classLDX  = 0x01
	classST   = 0x02
	classSTX  = 0x03
	classALU  = 0x04
	classJMP  = 0x05
	classRET  = 0x06
	classMISC = 0x07

	sizeW = 0x00
	sizeH = 0x08
	sizeB = 0x10

	modeIMM = 0x00
	modeABS = 0x20
	modeIND = 0x40
	modeMEM = 0x60
	modeLEN = 0x80
	modeMSH = 0xa0

	aluADD = 0x00
	aluSUB = 0x10
	aluMUL = 0x20
	aluDIV = 0x30
	aluOR  = 0x40
	aluAND = 0x50
	aluLSH = 0x60
	aluRSH = 0x70
	aluNEG = 0x80
	aluMOD = 0x90
	aluXOR = 0xa0

	jmpJA   = 0x00
	jmpJEQ  = 0x10
	jmpJGT  = 0x20
	jmpJGE  = 0x30
	jmpJSET = 0x40

	srcX = 0x08
	retA = 0x10

	opTAX = classMISC
	opTXA = classMISC | 0x80
	opJA  = classJMP | jmpJA
	opMSH = classLDX | modeMSH | sizeB
)

// memWords is the number of words of M[].
const memWords = 16

// known has the opcodes that the kernel accepts (bpf_check_classic). libpcap generates no others.
var known = func() (k [256]bool) {
	for _, size := range []uint16{sizeW, sizeH, sizeB} {
		k[classLD|modeABS|size] = true
		k[classLD|modeIND|size] = true
	}
	for _, class := range []uint16{classLD, classLDX} {
		k[class|modeIMM] = true
		k[class|modeMEM] = true
		k[class|modeLEN] = true
	}
	for op := uint16(aluADD); op <= aluXOR; op += 0x10 {
		k[classALU|op] = true
		k[classALU|op|srcX] = op != aluNEG
	}
	for op := uint16(jmpJEQ); op <= jmpJSET; op += 0x10 {
		k[classJMP|op] = true
		k[classJMP|op|srcX] = true
	}
	for _, op := range []uint16{classST, classSTX, classRET, classRET | retA, opTAX, opTXA, opJA, opMSH} {
		k[op] = true
	}
	return k
}()

func class(ins bpf.RawInstruction) uint16 { return ins.Op & 0x07 }
func mode(ins bpf.RawInstruction) uint16  { return ins.Op & 0xe0 }
func aluOp(ins bpf.RawInstruction) uint16 { return ins.Op & 0xf0 }
func withX(ins bpf.RawInstruction) bool   { return ins.Op&srcX != 0 }

// size returns how many bytes of the packet an instruction loads.
func size(ins bpf.RawInstruction) uint32 {
	switch ins.Op & 0x18 {
	case sizeH:
		return 2
	case sizeB:
		return 1
	}
	return 4
}

// isPacketLoad tells whether an instruction reads the packet.
func isPacketLoad(ins bpf.RawInstruction) bool {
	return class(ins) == classLD && (mode(ins) == modeABS || mode(ins) == modeIND) || ins.Op == opMSH
}

// isBranch tells whether an instruction is a conditional jump.
func isBranch(ins bpf.RawInstruction) bool { return class(ins) == classJMP && ins.Op != opJA }
