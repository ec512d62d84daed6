// SPDX-License-Identifier: Apache-2.0

package runstate

import (
	"os"
	"slices"
	"testing"

	"culvert/internal/host/trust"
)

// TestRead checks what a reader sees of a running process, of a killed one, and after another process has replaced it.
func TestRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	const kind, netns, name, plane = "test", 1, "runstate test/1", 4711
	expect := func(plane uint64, wantKnown bool, want ...string) {
		t.Helper()
		var got []string
		known, err := Read(kind, netns, name, plane, &got)
		if err != nil || known != wantKnown || known && !slices.Equal(got, want) {
			t.Errorf("got %+v, known %v, %v; want %+v, %v", got, known, err, want, wantKnown)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const session = "established"
	expect(plane, false)
	w := NewWriter(kind, netns, name)
	defer w.Close()
	check(w.Write(plane, nil))
	expect(plane, true)
	check(w.Write(plane, []string{session}))
	expect(plane, true, session)
	if known, err := Read(kind, netns, name, plane+1, new([]string)); known || err != nil {
		t.Errorf("the state of another data plane is known: %v, %v", known, err)
	}

	done := make(chan error)
	go func() {
		var err error
		for n := 0; n < 2000 && err == nil; n++ {
			err = w.Write(plane, []string{session})
		}
		done <- err
	}()
	for over := false; !over; {
		select {
		case err := <-done:
			check(err)
			over = true
		default:
			check(Sweep())
			expect(plane, true, session)
		}
	}

	text, err := os.ReadFile(w.path)
	check(err)
	w.Close()
	expect(plane, false)
	check(trust.MakeDir(trust.RunDir))
	check(os.WriteFile(w.path, text, 0o600)) // like the file of a killed process, it is not locked
	expect(plane, false)
	temporary := w.path + ".1"
	other := trust.RunDir + "/runstate-test.lock"
	for _, path := range []string{temporary, other} {
		check(os.WriteFile(path, nil, 0o600))
	}
	defer os.Remove(other)
	check(Sweep())
	for path, want := range map[string]bool{w.path: false, temporary: false, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("after Sweep %s exists: %v, want %v", path, err == nil, want)
		}
	}
	check(w.Write(plane, []string{session}))
	check(Sweep())
	expect(plane, true, session)
	next := NewWriter(kind, netns, name)
	check(next.Write(plane+1, nil))
	w.Close()
	expect(plane+1, true)
	next.Close()
	if _, err := os.Stat(next.path); !os.IsNotExist(err) {
		t.Errorf("%s still exists", next.path)
	}
}
