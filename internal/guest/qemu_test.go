// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeMachine is a guest whose emulator is a shell script.
func fakeMachine(t *testing.T, script string) (m Machine, progress, output *bytes.Buffer) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, emulators[AMD64].program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	progress, output = &bytes.Buffer{}, &bytes.Buffer{}
	k := Kernel{Arch: AMD64, Line: "6.1", Release: "6.1-cloud-test", Package: "1", dir: t.TempDir()}
	for _, name := range k.modules() {
		if err := os.WriteFile(filepath.Join(k.dir, name+".ko"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{Kernel: k, Memory: 64, Limit: time.Minute, Progress: progress, Output: output}, progress, output
}

// Progress, output and answer of a guest are told apart, and a guest that has answered is ended.
func TestGuestAnswers(t *testing.T) {
	m, progress, output := fakeMachine(t, `echo 'progress one'; echo 'output two  three'
echo 'answer {"failed":["x"]}'; exec sleep 600`)
	a, err := m.Run(t.Context())
	if err != nil || len(a.Failed) != 1 || a.Failed[0] != "x" {
		t.Errorf("answer %+v, error %v", a, err)
	}
	if !strings.Contains(progress.String(), "6.1: one\n") || output.String() != "two  three\n" {
		t.Errorf("progress %q, output %q", progress, output)
	}
}

func TestGuestFails(t *testing.T) {
	for script, want := range map[string]string{
		`echo 'answer {"error":"no room"}'`: "guest with Linux 6.1-cloud-test (1): no room",
		`echo oops >&2; exit 3`:             "ended without an answer: exit status 3; its console's last lines: oops",
		`echo 'answer {'`:                   "read its answer",
	} {
		m, _, _ := fakeMachine(t, script)
		if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", script, err, want)
		}
	}
	m, _, _ := fakeMachine(t, `exec sleep 600`)
	m.Limit = 200 * time.Millisecond
	if _, err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
		t.Errorf("a guest that hangs: error %v", err)
	}
}

func TestInitNeedsAGuest(t *testing.T) {
	if err := Init(t.Context()); !errors.Is(err, ErrNotInGuest) {
		t.Errorf("error %v", err)
	}
}
