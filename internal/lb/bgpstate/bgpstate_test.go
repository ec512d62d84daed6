// SPDX-License-Identifier: Apache-2.0

package bgpstate

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"culvert/internal/host/trust"
)

// TestRead has a process tell, another one be killed, and a data plane detached and attached again.
func TestRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	const netns, name, plane = 1, "bgpstate test/1", 4711
	expect := func(plane uint64, wantKnown bool, want ...Session) {
		t.Helper()
		got, known, err := Read(netns, name, plane)
		if err != nil || known != wantKnown || !slices.EqualFunc(got, want, func(a, b Session) bool { return a.Neighbor == b.Neighbor }) {
			t.Errorf("got %+v, known %v, %v; want %+v, %v", got, known, err, want, wantKnown)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	session := Session{Neighbor: netip.MustParseAddr("10.0.0.9"), State: "established"}
	expect(plane, false)
	w := NewWriter(netns, name)
	defer w.Close()
	check(w.Write(plane, nil))
	expect(plane, true)
	check(w.Write(plane, []Session{session}))
	expect(plane, true, session)
	if _, known, err := Read(netns, name, plane+1); known || err != nil {
		t.Errorf("it tells of a data plane that another process serves: %v", err)
	}

	done := make(chan error)
	go func() {
		var err error
		for n := 0; n < 2000 && err == nil; n++ {
			err = w.Write(plane, []Session{session})
		}
		done <- err
	}()
	for over := false; !over; {
		select {
		case err := <-done:
			check(err)
			over = true
		default:
			expect(plane, true, session)
		}
	}

	text, err := os.ReadFile(w.path)
	check(err)
	w.Close()
	expect(plane, false)
	check(trust.MakeDir(trust.RunDir))
	check(os.WriteFile(w.path, text, 0o600)) // as one that was killed leaves it
	expect(plane, false)
	check(w.Write(plane, []Session{session}))
	expect(plane, true, session)
	next := NewWriter(netns, name)
	check(next.Write(plane+1, nil))
	w.Close()
	expect(plane+1, true)
	next.Close()
	if _, err := os.Stat(next.path); !os.IsNotExist(err) {
		t.Errorf("left is %s", next.path)
	}
}
