// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scionproto/scion/router/control"
	"golang.org/x/sys/unix"

	"culvert/internal/events"
	"culvert/internal/lab"
)

// TestKeyScheduleUnderLoad rolls the forwarding key over by its schedule while packets with hop fields of both keys flow. The new
// key begins while no process runs. While both are valid, the process starts again, and reads a changed schedule. No packet under
// a valid key is lost. When the old key ends, its packets are refused: by the slow path without a fast path, and then by the fast
// path.
func TestKeyScheduleUnderLoad(t *testing.T) {
	r := &keyRoll{between: newBetween(t, lab.Options{Name: "ks"}), t: t}
	master := []byte("next master key.")
	r.next = filepath.Join(r.as.ConfigDir, "next.key")
	check(t, os.WriteFile(r.next, []byte(base64.StdEncoding.EncodeToString(master)+"\n"), 0o600))
	r.third = filepath.Join(r.as.ConfigDir, "third.key")
	check(t, os.WriteFile(r.third, []byte(base64.StdEncoding.EncodeToString([]byte("the third key..."))+"\n"), 0o600))
	began := time.Now()
	r.serve(t).end(syscall.SIGTERM)
	unit := time.Since(began) + time.Second/2
	r.old, r.fresh = r.stream(t, "", 0), r.stream(t, base64.StdEncoding.EncodeToString(control.DeriveHFMacKey(master)), numbers)
	r.fresh.on.Store(false)
	r.load = startLoad(t, r.from, r.old, r.fresh)
	for try := 0; !r.roll(unit << try); try++ {
		if try == 4 {
			t.Fatal("starts take ever longer")
		}
		t.Log("the old key had ended before the process ran again: once more, with more time")
	}
}

// keyRoll is a router whose key is rolled over.
type keyRoll struct {
	*between
	t          *testing.T
	next       string // the file with the new key
	third      string // the file with a key for later
	old, fresh *stream
	load       *steadyLoad
}

// run starts the process with the schedule.
func (r *keyRoll) run(begins, ends time.Time) *process {
	r.t.Helper()
	return r.serveAs(r.t, program(), "run", "-c", r.write(begins, ends, ""))
}

// write writes the file of the process, with more text at its end, and returns its path.
func (r *keyRoll) write(begins, ends time.Time, more string) string {
	r.t.Helper()
	path := filepath.Join(r.as.ConfigDir, "culvert.toml")
	text := fmt.Sprintf("[scion]\nconfig = %q\n[[scion.key]]\nfile = %q\nnot_after = %s\n[[scion.key]]\nfile = %q\nnot_before = %s\n", r.config,
		filepath.Join(r.as.Keys, "master0.key"), ends.UTC().Format(time.RFC3339Nano), r.next, begins.UTC().Format(time.RFC3339Nano))
	check(r.t, os.WriteFile(path, []byte(text+more), 0o600))
	return path
}

// roll rolls over in times that are some units long, in which a process starts. It returns false if the old key has ended too early
// for the test.
func (r *keyRoll) roll(unit time.Duration) bool {
	t, id := r.t, r.as.RouterID
	const step = 100
	// The packets of the new key stop before it is not valid yet, and those of the old one before it ends.
	r.load.pause(r.fresh)
	begins := time.Now().Add(2 * unit)
	ends := begins.Add(4*unit + 2*time.Second)
	r.old.on.Store(true)
	stop := time.AfterFunc(time.Until(ends)-time.Second/2, func() { r.old.on.Store(false) })
	defer stop.Stop()
	p := r.run(begins, ends)
	for { // the program is in force a moment before its keys can be listed
		list := culvert(t, r.lab, "rut", "key", "list", "--on", id)
		if strings.Contains(list, "current") && strings.Contains(list, "next key in ") {
			break
		}
		if time.Now().After(begins) {
			p.end(syscall.SIGTERM)
			return false
		}
	}
	p.end(syscall.SIGTERM)
	time.Sleep(time.Until(begins) + 50*time.Millisecond)
	r.fresh.on.Store(true)
	r.load.wait(step)
	p = r.run(begins, ends)
	r.load.wait(step)
	r.write(begins, ends, fmt.Sprintf("[[scion.key]]\nfile = %q\nnot_before = %s\n", r.third, ends.Add(time.Hour).UTC().Format(time.RFC3339Nano)))
	culvert(t, r.lab, "rut", "reload")
	r.load.wait(step)
	if list := culvert(t, r.lab, "rut", "key", "list", "--on", id); strings.Count(list, "key  id ") != 3 {
		t.Errorf("key list after a reload with a third key:\n%s", list)
	}
	if !r.old.on.Load() {
		p.end(syscall.SIGTERM)
		return false
	}
	if out, err := r.lab.Run(t.Context(), "rut", program(), "key", "add", "--on", id, "1", r.next); exitStatus(err) != 1 || !strings.Contains(string(out), "follow the schedule") {
		t.Errorf("key add with a schedule: exit status %d: %s", exitStatus(err), out)
	}
	r.load.pause(r.old)
	r.load.pause(r.fresh)
	settled(t, r.sink)
	r.old.wantAll(t, r.sink)
	r.fresh.wantAll(t, r.sink)

	happens := eventsOf(t, id)                         // in time: the test may be slow from here to the end of the old key
	culvert(t, r.lab, "rut", "detach", "to-a", "to-b") // without the fast path
	if time.Now().After(ends.Add(-time.Second)) {
		p.end(syscall.SIGTERM)
		return false
	}
	r.trickle(r.old, r.fresh)
	settled(t, r.sink)
	r.old.wantAll(t, r.sink)
	r.fresh.wantAll(t, r.sink)

	time.Sleep(time.Until(ends) + 50*time.Millisecond)
	r.refuse("the slow path")
	happens.await(t, "key", func(e events.Event) bool { return e.Text == "Forwarding key has ended" && e.Fields["id"] != nil })
	wait(t, "the log to report the end of the old key", func() bool { return strings.Contains(p.out.String(), "Forwarding key has ended") })
	p.end(syscall.SIGTERM)
	p = r.run(begins, ends)
	r.refuse("the fast path")
	list := culvert(t, r.lab, "rut", "key", "list", "--on", id)
	if !strings.Contains(list, "ended") || !strings.Contains(list, "current") {
		t.Errorf("key list behind the end:\n%s", list)
	}
	t.Logf("%d packets under the old key, %d under the new", r.old.sent.Load(), r.fresh.sent.Load())
	p.end(syscall.SIGTERM)
	r.load.stop()
	return true
}

// refuse sends packets of both keys after the old one has ended. Only those of the new one arrive.
func (r *keyRoll) refuse(by string) {
	r.t.Helper()
	tags, err := r.sink.Tags()
	check(r.t, err)
	former := slices.Clone(tags[r.old.first : r.old.first+numbers])
	r.trickle(r.old, r.fresh)
	settled(r.t, r.sink)
	tags, err = r.sink.Tags()
	check(r.t, err)
	if !slices.Equal(former, tags[r.old.first:r.old.first+numbers]) {
		r.t.Errorf("%s forwards packets under a key that has ended", by)
	}
	r.fresh.wantAll(r.t, r.sink)
}

// trickle sends packets of streams that the load does not send, so slowly that the slow path keeps up.
func (r *keyRoll) trickle(streams ...*stream) {
	r.t.Helper()
	fd := packetSocket(r.t, r.from)
	defer unix.Close(fd)
	for range 50 {
		for _, s := range streams {
			check(r.t, s.send(fd))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestKeyTakenOut takes a key out of the schedule that others know. Once the reload has answered, both paths refuse it.
func TestKeyTakenOut(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "kto"})
	master := []byte("key others know.")
	known := filepath.Join(b.as.ConfigDir, "known.key")
	check(t, os.WriteFile(known, []byte(base64.StdEncoding.EncodeToString(master)+"\n"), 0o600))
	path := filepath.Join(b.as.ConfigDir, "culvert.toml")
	write := func(more string) {
		text := fmt.Sprintf("[scion]\nconfig = %q\n[[scion.key]]\nfile = %q\n", b.config, filepath.Join(b.as.Keys, "master0.key"))
		check(t, os.WriteFile(path, []byte(text+more), 0o600))
	}
	with := fmt.Sprintf("[[scion.key]]\nfile = %q\nnot_before = 2026-01-01T00:00:00Z\n", known)
	write(with)
	b.serveAs(t, program(), "run", "-c", path)
	s := b.stream(t, base64.StdEncoding.EncodeToString(control.DeriveHFMacKey(master)), 0)
	fd := packetSocket(t, b.from)
	defer unix.Close(fd)
	send := func() {
		for range 20 {
			check(t, s.send(fd))
			time.Sleep(time.Millisecond)
		}
	}
	for range 3 {
		send()
		settled(t, b.sink)
		s.wantAll(t, b.sink)
		before := s.sent.Load()
		write("")
		culvert(t, b.lab, "rut", "reload")
		send()
		settled(t, b.sink)
		for n, arrived := range s.arrivals(t, b.sink)[before:] {
			if arrived != 0 {
				t.Fatalf("packet %d under the key that was taken out was forwarded", n)
			}
		}
		s.sent.Store(before) // the numbers of those that were refused are sent again
		write(with)
		culvert(t, b.lab, "rut", "reload")
	}
}
