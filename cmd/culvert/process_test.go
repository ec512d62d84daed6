// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// running is a culvert that runs beside the test.
type running struct {
	cmd          *exec.Cmd
	mu           sync.Mutex
	stdout, errs bytes.Buffer
}

// tell collects what the process writes to standard output or standard error.
type tell struct {
	r  *running
	to *bytes.Buffer
}

func (w tell) Write(b []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.to.Write(b)
}

// startCulvert runs a command line in the background, until the end of the test.
func startCulvert(t *testing.T, args ...string) *running {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], args...))
}

// startCommand runs a command in the background, until the end of the test. The test binary is culvert to it.
func startCommand(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd}
	r.cmd.Env = append(os.Environ(), asCulvert+"=1")
	r.cmd.Stdout, r.cmd.Stderr = tell{r, &r.stdout}, tell{r, &r.errs}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	return r
}

// runAttached runs 'culvert run' with a file in the background, and waits until it is attached.
func runAttached(t *testing.T, file string) *running {
	t.Helper()
	r := startCulvert(t, "run", "-c", file)
	r.waitFor(t, "msg=attached ")
	return r
}

// waitFor waits until the process has written something to standard error.
func (r *running) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		found := strings.Contains(r.errs.String(), text)
		r.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("no %q from %v: %s", text, r.cmd.Args, &r.errs)
}

// interrupt sends SIGINT to the process, wants it to exit with status 0, and returns its standard output.
func (r *running) interrupt(t *testing.T) string {
	t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %v: %s", r.cmd.Args, err, &r.errs)
	}
	return r.stdout.String()
}

// ownSpaces runs a shell script in mount, PID and network namespaces of its own. So the bpffs of PID 1, in which culvert pins, can
// be one of the test. In the script $CULVERT is culvert, and $DIR a directory for files. ownSpaces returns the output, and by name
// the lines below each line "== NAME and more".
func ownSpaces(t *testing.T, script string, env ...string) (parts map[string]string, out string) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script)
	cmd.Env = append(append(os.Environ(), asCulvert+"=1", "CULVERT="+os.Args[0], "DIR="+t.TempDir()), env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	parts = map[string]string{}
	for _, part := range strings.Split(string(text), "== ")[1:] {
		head, rest, _ := strings.Cut(part, "\n")
		head, _, _ = strings.Cut(head, " ")
		parts[head] = rest
	}
	return parts, string(text)
}
