// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bonds lose members in a guest beside the lab, since the kernel of this machine may have no bonds. The guest gets the CPU time that
// the lab leaves over.
type bonds struct {
	// test is the program with the tests, "" to have no guest. culvert boots the guest.
	test, culvert string

	mu sync.Mutex
	// lost counts members that were lost. sent, culverts and kernels are the packets of each stream meanwhile, and how many of
	// culvert's and of the kernel's were lost.
	lost, sent, culverts, kernels int
	passed, failed                int
	// slow counts guests and tests that a busy machine has ended.
	slow int
	// lines are the last lines of the output.
	lines []string
}

// bondRuns is how often one guest repeats the test. Guests end after an hour, and a busy machine takes ten minutes for each time.
const bondRuns = 1

// run has a guest after the other until ctx ends.
func (b *bonds) run(ctx context.Context, s *soak) {
	for b.test != "" && ctx.Err() == nil {
		// The guest's card makes it boot a kernel that has bonds. Nothing goes over it.
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", b.culvert, "guest", "test", "--wire=virtio_net", "--program=ip,ethtool", "--kernel=6.12",
			fmt.Sprintf("%s -test.v -test.count=%d -test.run=^TestBonds$/^lost$", b.test, bondRuns))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		cmd.WaitDelay = 20 * time.Second
		var stderr bytes.Buffer
		before := b.told()
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			b.read(out, s.trouble)
			err = cmd.Wait()
		}
		if err != nil && ctx.Err() == nil {
			if text := b.ended(lastOf(stderr.String()), b.told() > before); text != "" {
				s.trouble("guest with bonds: %v: %s", err, text)
			}
			sleep(ctx, time.Minute)
		}
	}
}

// told returns how many tests have failed, for whatever reason.
func (b *bonds) told() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed + b.slow
}

// ended takes the last line of a guest that has ended with an error, and whether a test of it is known to have failed. It returns what is
// wrong beyond that, "" for nothing.
func (b *bonds) ended(text string, told bool) string {
	switch {
	case told && strings.Contains(text, "guest test: failed: "):
		return ""
	case !strings.Contains(text, "no answer within "):
		return text
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow++
	return ""
}

var (
	bondStreams = regexp.MustCompile(`, (\d+) times: of (\d+) packets each, (\d+) were lost through culvert and (\d+) through the kernel`)
	bondResult  = regexp.MustCompile(`^ *--- (PASS|FAIL): TestBonds/lost/`)
)

// read reads the output of a guest, line by line.
func (b *bonds) read(r io.Reader, trouble func(format string, args ...any)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text := b.line(lines.Text()); text != "" {
			trouble("guest with bonds: %s", text)
		}
	}
	_, _ = io.Copy(io.Discard, r)
}

// line takes a line of output. It returns what is wrong, "" for nothing.
func (b *bonds) line(text string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines = append(b.lines, strings.TrimSpace(text)); len(b.lines) > 8 {
		b.lines = b.lines[1:]
	}
	if m := bondStreams.FindStringSubmatch(text); m != nil {
		for n, to := range []*int{&b.lost, &b.sent, &b.culverts, &b.kernels} {
			v, _ := strconv.Atoi(m[n+1])
			*to += v
		}
	}
	m := bondResult.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	lines := strings.Join(b.lines, " | ")
	b.lines = nil // they say nothing of the next test
	switch {
	case m[1] == "PASS":
		b.passed++
	case strings.Contains(lines, "context deadline exceeded"):
		b.slow++
	default:
		b.failed++
		return lines
	}
	return ""
}

// page writes what has become of the packets, and returns what is wrong.
func (b *bonds) page(w io.Writer) (troubles []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.test == "" {
		fmt.Fprint(w, "  members of bonds lost: none, there was no guest\n")
		return nil
	}
	fmt.Fprintf(w, "%5d  members of bonds lost, in a guest: of %d packets by each of two streams, culvert has lost %d, the kernel's bonding beside it %d; %d tests passed, %d failed, %d ended by a busy machine\n",
		b.lost, b.sent, b.culverts, b.kernels, b.passed, b.failed, b.slow)
	if b.lost == 0 {
		troubles = append(troubles, "no bond has lost a member: the guest has not come so far")
	}
	if b.slow > max(1, b.passed) {
		troubles = append(troubles, "more tests with bonds were ended by a busy machine than have passed")
	}
	return troubles
}

// lastOf returns the last line of a text.
func lastOf(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return all[len(all)-1]
}
