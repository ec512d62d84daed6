// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"culvert/internal/guest/cards"
)

// TestOptions are the options of Test.
type TestOptions struct {
	// Arch is the architecture, such as "arm64". Empty stands for this machine's.
	Arch string
	// Lines are lines of kernels, such as "6.1". Empty stands for all.
	Lines []string
	// Commands are test programs, each followed by its arguments, separated by spaces.
	Commands []string
	// Programs are names of the host's programs that the tests call. The guest has them in /bin.
	Programs []string
	// Wires are pairs of cards of the guest (cards.Parse). With any, the kernels are those that Debian installs on a machine,
	// and the guest has two CPUs.
	Wires []string
	// Output receives the output of the tests, and for each program a last line in the manner of 'go test'.
	Output io.Writer
	// Progress receives a line for each step.
	Progress io.Writer
}

// Test runs test programs on each kernel. It fails if a test program fails.
func Test(ctx context.Context, o TestOptions) error {
	wires, err := parseWires(o.Wires)
	if err != nil {
		return err
	}
	arch, err := ParseArch(o.Arch)
	if err != nil {
		return err
	}
	flavor := Cloud
	if len(wires) > 0 {
		flavor = Standard
	}
	if len(wires) > 0 && arch != AMD64 {
		return fmt.Errorf("%w: only guests of %s have cards", ErrWire, AMD64)
	}
	kernels, err := findKernels(ctx, arch, o.Lines, flavor, nil, o.Progress)
	if err != nil {
		return err
	}
	files, err := arch.programFiles(ctx, o.Programs)
	if err != nil {
		return err
	}
	var commands []Command
	for _, text := range o.Commands {
		words := strings.Fields(text)
		if len(words) == 0 {
			return fmt.Errorf("an empty command: give a test program and its arguments")
		}
		name := filepath.Base(words[0])
		in := "/tests/" + name
		if other, ok := files[in]; ok && other != words[0] {
			return fmt.Errorf("%s and %s have the same name in a guest: rename one", other, words[0])
		}
		files[in] = words[0]
		commands = append(commands, Command{Name: text, Args: slices.Concat([]string{in}, words[1:]), Dir: "/tmp"})
	}
	var failed []string
	for _, k := range kernels {
		m := Machine{
			Kernel:   k,
			Job:      Job{Commands: commands},
			Files:    files,
			Wires:    wires,
			Memory:   3072,
			Limit:    time.Duration(len(commands)) * time.Hour, // long enough for a busy machine
			Progress: o.Progress,
			Output:   o.Output,
		}
		a, err := m.Run(ctx)
		if err != nil {
			return err
		}
		for _, c := range commands {
			name := filepath.Base(c.Args[0])
			if slices.Contains(a.Failed, c.Name) {
				fmt.Fprintf(o.Output, "FAIL\t%s on Linux %s\n", name, k.Release)
				failed = append(failed, name+" on Linux "+k.Release)
			} else {
				fmt.Fprintf(o.Output, "ok  \t%s on Linux %s\n", name, k.Release)
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// ErrWire marks a wire that cards.Parse refuses.
var ErrWire = errors.New("wire")

// parseWires reads wires.
func parseWires(texts []string) (wires []cards.Wire, err error) {
	for _, text := range texts {
		w, err := cards.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWire, err)
		}
		wires = append(wires, w)
	}
	return wires, nil
}

// programFiles finds programs of the architecture by name. It returns their paths, by their path in a guest.
func (a Arch) programFiles(ctx context.Context, names []string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range names {
		at, err := a.lookPath(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("find a program for the guest: %w", err)
		}
		files[filepath.Join(programs, filepath.Base(name))] = at
	}
	return files, nil
}
