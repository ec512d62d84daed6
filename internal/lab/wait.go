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

// WaitPaths waits until the two ends of topology scion3 have a path to each
// other that answers a probe. It fails as soon as one of the lab's processes
// ends, and after the timeout, quoting the log that says most about the cause.
func (l *Lab) WaitPaths(ctx context.Context, timeout time.Duration, out io.Writer) error {
	ases := l.ases()
	if len(ases) < 2 {
		return fmt.Errorf("lab %s has no second AS to wait for", l.Name)
	}
	first, last := ases[0], ases[len(ases)-1]
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoPaths)
	defer cancel()
	start := time.Now()
	said := start
	for {
		err := l.probe(ctx, first.NS, last.IA)
		if err == nil {
			err = l.probe(ctx, last.NS, first.IA)
		}
		if err == nil {
			progress(out, "paths between %s and %s after %d s", first.NS, last.NS, int(time.Since(start).Seconds()))
			return nil
		}
		if dead := l.dead(); dead != nil {
			return fmt.Errorf("%s has ended: %s", dead.Name, l.complaint(*dead))
		}
		if time.Since(said) >= 2*time.Second {
			said = time.Now()
			progress(out, "waiting for paths between %s and %s, %d s", first.NS, last.NS, int(time.Since(start).Seconds()))
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == errNoPaths {
				return fmt.Errorf("no path between %s and %s after %s: %w%s", first.NS, last.NS, timeout, err, l.worstComplaint())
			}
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var errNoPaths = errors.New("no paths in time")

// probe asks the AS's daemon for paths and probes them.
func (l *Lab) probe(ctx context.Context, ns, ia string) error {
	_, err := l.Run(ctx, ns, "scion", "showpaths", ia, "--refresh", "--timeout", "2s", "--no-color")
	return err
}

// dead returns a process of the lab that has ended, if there is one.
func (l *Lab) dead() *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.Processes {
		if !p.Alive() {
			return &p
		}
	}
	return nil
}

// complaint returns the last error in a process's log, or else its last line.
func (l *Lab) complaint(p Process) string {
	if line := lastError(p.Log); line != "" {
		return line
	}
	return lastLine(p.Log)
}

// worstComplaint looks for the log that explains why there are no paths:
// routers before control services before the rest.
func (l *Lab) worstComplaint() string {
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

// lastError returns the last line of a log that reports an error, or nothing.
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
