// SPDX-License-Identifier: Apache-2.0

//go:build guest && arm64

package bpfobj

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// Instructions of arm64 that order memory, by the bits that are theirs alone (Arm ARM, C6.2): LDSETAL of 64 bits and CASAL of 32;
// for processors without LSE, DMB ISH.
const (
	bitsAtomic = 0xffe0fc00
	ldsetal    = 0xf8e03000
	casal      = 0x88e0fc00
	dmbISH     = 0xd5033bbf
)

// TestLitmusCompiled: what the kernel's compiler makes of fences and locks is what bpf/core/fence.h and lock.h say. Five fences are in
// the functions of bpf/test/litmus_test.bpf.c, and one lock is taken.
func TestLitmusCompiled(t *testing.T) {
	var objects litmusObjectsOfKernel
	if err := LoadLitmusObjects(&objects, nil); err != nil {
		t.Fatal(err)
	}
	defer objects.Litmus.Close()
	info, err := objects.Litmus.Info()
	if err != nil {
		t.Fatal(err)
	}
	code, ok := info.JitedInsns()
	if !ok || len(code) == 0 {
		t.Fatal("the kernel shows no compiled program")
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	fences, locks, barriers := 0, 0, 0
	for ; len(code) >= 4; code = code[4:] {
		ins := binary.LittleEndian.Uint32(code)
		switch {
		case ins&bitsAtomic == ldsetal:
			if ins&31 == 31 {
				t.Errorf("%08x drops the old value: it is no acquire", ins)
			}
			fences++
		case ins&bitsAtomic == casal:
			locks++
		case ins == dmbISH:
			barriers++
		}
	}
	t.Logf("%d LDSETAL, %d CASAL, %d DMB ISH", fences, locks, barriers)
	if strings.Contains(string(cpu), " atomics") {
		if fences != 5 || locks < 1 {
			t.Errorf("%d fences, want 5; %d locks, want 1", fences, locks)
		}
	} else if barriers < 6 {
		t.Errorf("%d barriers for 5 fences and a lock", barriers)
	}
}

type litmusObjectsOfKernel struct {
	Litmus *ebpf.Program `ebpf:"litmus"`
}
