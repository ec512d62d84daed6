// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// LoadError turns an error of loading a program into one line that says what to do about it. It shortens the verifier's log.
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

// PermissionError returns an error for an action that was not permitted, with the rights that it takes. Tried names the action,
// such as "reading DIRECTORY". The error matches fs.ErrPermission.
func PermissionError(tried string) error { return notPermitted(tried) }

// notPermitted is an action that was not permitted. It matches fs.ErrPermission.
type notPermitted string

func (tried notPermitted) Error() string {
	return string(tried) + ": not permitted: run as root, or with CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and write access to bpffs"
}

func (notPermitted) Is(target error) bool { return target == fs.ErrPermission }

// NotExist tells whether an error says that a file or an entry of a map does not exist.
func NotExist(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, ebpf.ErrKeyNotExist)
}

// SetVariables sets constants of a program that is not loaded yet, by their names.
func SetVariables(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}
