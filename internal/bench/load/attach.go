// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
)

// Attachment is a loaded program on a device; closing it removes both.
type Attachment struct {
	// Prog is the program, while it is loaded.
	Prog *ebpf.Program
	link io.Closer
}

// Close detaches and unloads the program. Closing nil does nothing.
func (a *Attachment) Close() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.link.Close(), a.Prog.Close())
}

// AttachBench loads one of the bench's programs, sets its variables and attaches it to a device in native mode.
func AttachBench(e End, program string, variables map[string]any) (*Attachment, error) {
	spec, err := LoadBench()
	if err != nil {
		return nil, err
	}
	for name, value := range variables {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", program, err)
		}
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{program: spec.Programs[program]}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", program, err)
	}
	defer loaded.Close()
	a := &Attachment{Prog: loaded.DetachProgram(program)}
	if a.link, err = e.AttachXDP(a.Prog); err != nil {
		return nil, errors.Join(err, a.Prog.Close())
	}
	return a, nil
}

// Listen makes a veth accept packets that its peer redirects into it, and pass them to the stack. A veth needs NAPI for
// that, which an XDP program turns on. Without it packets are lost and not counted.
func Listen(e End) (io.Closer, error) {
	a, err := AttachBench(e, BenchProgBenchEmpty, nil)
	if err != nil {
		return nil, err
	}
	return a, nil
}
