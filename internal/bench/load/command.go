// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command runs a program in the namespace with input on its standard input. It returns its output, both streams. An error
// has the last line of it.
func (s *Netns) Command(ctx context.Context, input, program string, args ...string) (string, error) {
	var out []byte
	err := s.Do(func() error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdin = strings.NewReader(input)
		// A session of its own keeps an interrupt from the keyboard away from the program.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
		var err error
		out, err = cmd.CombinedOutput()
		return err
	})
	if ctx.Err() != nil {
		return "", fmt.Errorf("run %s: interrupted: %w", program, ctx.Err())
	}
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return "", fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return string(out), nil
}
