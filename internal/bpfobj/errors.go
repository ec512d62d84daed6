// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// LoadError makes one line of a verifier's log and names what usually helps.
func LoadError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return PermissionError("loading the eBPF program")
	}
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Errorf("loading the eBPF program: %v: this kernel is too old or lacks a "+
			"feature: see 'culvert doctor'", ve)
	}
	return fmt.Errorf("loading the eBPF program: %w: see 'culvert doctor'", err)
}

// PermissionError says what was tried without the right to, and which rights it takes.
func PermissionError(tried string) error {
	return fmt.Errorf("%s: not permitted: run as root, or with CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON "+
		"and write access to bpffs", tried)
}

// NotExist tells whether an error is the lack of a file or of a map's entry.
func NotExist(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, ebpf.ErrKeyNotExist)
}

// SetVariables sets constants of a program, by name.
func SetVariables(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
