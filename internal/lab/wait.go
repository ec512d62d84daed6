// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// WaitPaths waits until the two ends of topology scion3 have a path to each other
// that answers a probe. It returns an error if one of the lab's processes ends, and
// after the timeout. The error quotes the log that is closest to the cause.
func (l *Lab) WaitPaths(ctx context.Context, timeout time.Duration, out io.Writer) error {
	ases := l.ases()
	if len(ases) < 2 {
		return fmt.Errorf("lab %s has no second AS to wait for", l.Name)
	}
	first, last := ases[0], ases[len(ases)-1]
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoPaths)
	defer cancel()
	start := time.Now()
	reported := start
	for {
		err := l.probe(ctx, first.NS, last.IA)
		if err == nil {
			err = l.probe(ctx, last.NS, first.IA)
		}
		if err == nil {
			progress(out, "paths between %s and %s after %d s", first.NS, last.NS, int(time.Since(start).Seconds()))
			return nil
		}
		if ended := l.endedProcess(); ended != nil {
			return fmt.Errorf("%s has ended: %s", ended.Name, l.lastProblem(*ended))
		}
		if time.Since(reported) >= 2*time.Second {
			reported = time.Now()
			progress(out, "waiting for paths between %s and %s, %d s", first.NS, last.NS, int(time.Since(start).Seconds()))
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == errNoPaths {
				return fmt.Errorf("no path between %s and %s after %s: %w%s", first.NS, last.NS, timeout, err, l.likelyCause())
			}
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var errNoPaths = errors.New("no paths in time")

// probe asks the daemon of an AS for paths to another AS, and probes them.
func (l *Lab) probe(ctx context.Context, ns, ia string) error {
	_, err := l.Run(ctx, ns, "scion", "showpaths", ia, "--refresh", "--timeout", "2s", "--no-color")
	return err
}

// endedProcess returns a process of the lab that has ended, if there is one.
func (l *Lab) endedProcess() *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.Processes {
		if !p.Alive() {
			return &p
		}
	}
	return nil
}

// lastProblem returns the last error in a process's log, or the last line if it has none.
func (l *Lab) lastProblem(p Process) string {
	if line := lastError(p.Log); line != "" {
		return line
	}
	return lastLine(p.Log)
}

// likelyCause quotes an error from the logs that may explain why there are no paths.
// It prefers routers, then control services.
func (l *Lab) likelyCause() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []string{"-router", "-control", "-daemon", "-dispatcher"} {
		for _, p := range l.Processes {
			if !strings.HasSuffix(p.Name, kind) {
				continue
			}
			if line := lastError(p.Log); line != "" {
				return fmt.Sprintf("; the log of %s says: %s", p.Name, line)
			}
		}
	}
	return "; no log has an error"
}

// lastError returns the last line of a log that reports an error, "" if there is none.
func lastError(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	found := ""
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "ERROR") || strings.Contains(line, "CRIT") || strings.HasPrefix(line, "Error:") ||
			strings.HasPrefix(line, "culvert:") || strings.HasPrefix(line, "panic:") {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
