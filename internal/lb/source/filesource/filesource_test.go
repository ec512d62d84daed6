// SPDX-License-Identifier: Apache-2.0

package filesource

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/lb"
	"culvert/internal/lb/source/sourcetest"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func list(all []netip.Addr) string {
	var text strings.Builder
	text.WriteString("# backends\n\n")
	for _, a := range all {
		fmt.Fprintf(&text, "%s # one of them\n", a)
	}
	return text.String()
}

// TestConformance writes the file in place.
func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backends")
	var text string
	sourcetest.Run(t, sourcetest.World{
		Source: Source{path},
		Set:    func(all []netip.Addr) { text = list(all); write(t, path, text) },
		Spoil:  func() { write(t, path, text+"10.0.0.9:80\n") },
		Break: func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		Mend: func() { write(t, path, text) },
	})
}

// TestReplaced replaces the directory of the file behind a symbolic link, as a mounted volume may be.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	world := sourcetest.World{Source: Source{filepath.Join(dir, "now", "backends")}}
	n := 0
	replace := func(text string) {
		n++
		one := filepath.Join(dir, fmt.Sprint(n))
		if err := os.Mkdir(one, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(one, "backends"), text)
		link := filepath.Join(dir, "next")
		if err := os.Symlink(one, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "now")); err != nil {
			t.Fatal(err)
		}
	}
	world.Set = func(all []netip.Addr) { replace(list(all)) }
	world.Spoil = func() { replace("\x00") }
	world.Mend = func() { replace("10.0.0.4\n") }
	sourcetest.Run(t, world)
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backends")
	write(t, path, "10.0.0.2 weight=3\r\n  fd00::1 encapsulation=gue  # the other site\n#10.0.0.9\n10.0.0.1")
	got, err := Read(path)
	want := []lb.Offer{
		{Addr: netip.MustParseAddr("10.0.0.1"), Weight: 1}, {Addr: netip.MustParseAddr("10.0.0.2"), Weight: 3},
		{Addr: netip.MustParseAddr("fd00::1"), Weight: 1, Encap: lb.EncapGUE},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if got, err := Read("/dev/zero"); err == nil || got != nil {
		t.Errorf("a device was read: %v, %v", got, err)
	}
	if _, err := Read(filepath.Dir(path)); err == nil || !strings.HasSuffix(err.Error(), "is no regular file") {
		t.Errorf("a directory: %v", err)
	}
	pipe := filepath.Join(filepath.Dir(path), "pipe") // which nobody writes to
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := Read(pipe)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil || !strings.HasSuffix(err.Error(), "is no regular file") {
			t.Errorf("a named pipe: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a named pipe is waited for")
	}
	for _, c := range []struct{ text, want string }{
		{"10.0.0.1\n10.0.0.2\n10.0.0.1 weight=2\n", "line 3: backend 10.0.0.1 is there twice, first in line 1"},
		{"[backends]\n", `line 1: "[backends]" is no IP address`},
		{"10.0.0.1\n\xff\n", "it is no text"},
		{strings.Repeat("x", 1<<20), "line 1: it is too long"},
		{strings.Repeat("fd00::1\n", 1<<21), "more than 65536 backends: it has more than 8 MiB"},
		{million(), "it names more than 65536 backends"},
	} {
		write(t, path, c.text)
		got, err := Read(path)
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%.20q: %v, %v; want an error with %q", c.text, got, err, c.want)
		}
	}
}

// million returns as many backends, within the size of a file.
func million() string {
	var text strings.Builder
	a := netip.MustParseAddr("1.0.0.0")
	for range 1 << 20 {
		if text.Len() > largest-20 {
			break
		}
		text.WriteString(a.String() + "\n")
		a = a.Next()
	}
	return text.String()
}
