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
	// lines are the last lines of the output.
	lines []string
}

// bondRuns is how often one guest repeats the test. Guests end after half an hour.
const bondRuns = 3

// run has a guest after the other until ctx ends.
func (b *bonds) run(ctx context.Context, s *soak) {
	for b.test != "" && ctx.Err() == nil {
		// The guest's card makes it boot a kernel that has bonds. Nothing goes over it.
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", b.culvert, "guest", "test", "--wire=virtio_net", "--program=ip,ethtool", "--kernel=6.12",
			fmt.Sprintf("%s -test.v -test.count=%d -test.run=^TestBonds$/^lost$", b.test, bondRuns))
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		cmd.WaitDelay = 20 * time.Second
		var stderr bytes.Buffer
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
			s.trouble("guest with bonds: %v: %s", err, lastOf(stderr.String()))
			sleep(ctx, time.Minute)
		}
	}
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
	switch m := bondResult.FindStringSubmatch(text); {
	case m == nil:
	case m[1] == "PASS":
		b.passed++
	default:
		b.failed++
		return strings.Join(b.lines, " | ")
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
	fmt.Fprintf(w, "%5d  members of bonds lost, in a guest: of %d packets by each of two streams, culvert has lost %d, the kernel's bonding beside it %d; %d tests passed, %d failed\n",
		b.lost, b.sent, b.culverts, b.kernels, b.passed, b.failed)
	if b.lost == 0 {
		troubles = append(troubles, "no bond has lost a member: the guest has not come so far")
	}
	return troubles
}

// lastOf returns the last line of a text.
func lastOf(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return all[len(all)-1]
}
