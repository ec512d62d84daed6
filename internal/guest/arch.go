// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Arch is a processor architecture, under the name that Go and Debian have for it.
type Arch string

// AMD64 is x86-64, ARM64 is AArch64.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Arches are the architectures that guests have.
var Arches = []Arch{AMD64, ARM64}

// emulator is what QEMU needs to emulate an architecture.
type emulator struct {
	// program is that of QEMU, debian the package that has it.
	program, debian string
	// machine has the arguments for board and processor.
	machine []string
	// console is the first serial port, as the kernel calls it, and commandLine the rest of its command line. answer is the second
	// port, which takes what the guest says. port are QEMU's arguments for it, with the character device "answer".
	console, commandLine, answer string
	port                         []string
	// triplet is the directory of libraries in Debian.
	triplet string
}

var emulators = map[Arch]emulator{
	AMD64: {
		program: "qemu-system-x86_64",
		debian:  "qemu-system-x86",
		// The set of CPU features is fixed, so that another version of QEMU gives the same figures. It has those that the
		// kernel's JIT compiler uses (BMI2, MOVBE) and no random numbers. It lacks fast string moves (ERMS), because the clock
		// counts each turn of a repeated instruction, and short copies would look expensive.
		machine: []string{"-machine", "pc-i440fx-7.2", "-cpu", "Nehalem-v1,+bmi1,+bmi2,+avx,+avx2,+fma,+f16c,+movbe,+abm," +
			"+rdtscp,+smep,+smap,+fsgsbase,+xsave,+xsaveopt,+pclmulqdq,+aes,-rdrand,-rdseed"},
		console:     "ttyS0",
		commandLine: "tsc=reliable",
		answer:      "/dev/ttyS1",
		port:        []string{"-serial", "chardev:answer"},
		triplet:     "x86_64-linux-gnu",
	},
	ARM64: {
		program: "qemu-system-aarch64",
		debian:  "qemu-system-arm",
		// A Neoverse N1 has the atomic instructions of LSE, which the JIT compiler uses, and neither pointer authentication,
		// which is slow to emulate, nor random numbers. The board has one serial port. The second one is a PCI card.
		machine: []string{"-machine", "virt-7.2,gic-version=3,dtb-randomness=off", "-cpu", "neoverse-n1"},
		console: "ttyAMA0",
		answer:  "/dev/ttyS0",
		port:    []string{"-device", "pci-serial,chardev=answer"},
		triplet: "aarch64-linux-gnu",
	},
}

// hostArch is the architecture that guests have if none is given: this machine's, if guests have that.
func hostArch() Arch {
	if a := Arch(runtime.GOARCH); slices.Contains(Arches, a) {
		return a
	}
	return AMD64
}

// ParseArch returns the architecture of a name, and this machine's for an empty one.
func ParseArch(name string) (Arch, error) {
	if name == "" {
		return hostArch(), nil
	}
	if !slices.Contains(Arches, Arch(name)) {
		return "", fmt.Errorf("%w architecture %q: there are %s, %s", ErrUnknown, name, AMD64, ARM64)
	}
	return Arch(name), nil
}

// self is culvert for guests of the architecture: this program, or the one beside it that was built for them.
func (a Arch) self() (string, error) {
	self, err := os.Executable()
	if err != nil || a == hostArch() {
		return self, err
	}
	other := filepath.Join(filepath.Dir(self), "culvert-"+string(a))
	if _, err := os.Stat(other); err != nil {
		return "", fmt.Errorf("find culvert for a guest: %w: build it with 'make build-%s'", err, a)
	}
	return other, nil
}

// commandLine is that of the kernel. Mitigations are off because they depend on the CPU model: most models of today need
// no retpolines, which cost several instructions for each indirect call.
func (e emulator) kernelArguments(more string) string {
	words := []string{"console=" + e.console, "quiet", "panic=-1", "nokaslr", "norandmaps", "mitigations=off", e.commandLine, more,
		"rdinit=" + culvertPath, "--", "guest", "init"}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
