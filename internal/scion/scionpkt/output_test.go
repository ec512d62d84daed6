// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func writeText(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

func wantKind(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != want {
		t.Errorf("%s is %v (%v), want type %v", path, info, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOutputRegular replaces a file. Its mode stays, and after an error so does its content.
func TestOutputRegular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	must(t, writeOutput(path, io.Discard, writeText("first")))
	must(t, os.Chmod(path, 0o600))
	must(t, writeOutput(path, io.Discard, writeText("2nd")))
	wantText(t, path, "2nd")
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want that of the file before", info.Mode())
	}
	broken := errors.New("broken")
	if err := writeOutput(path, io.Discard, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	wantText(t, path, "2nd")
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%v is left, want one file", left)
	}
}

// TestOutputFollowsLinks writes by way of two symbolic links, to a file that does not exist and to one that does.
func TestOutputFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("sub/middle", link))
	must(t, os.Symlink("../real", filepath.Join(dir, "sub", "middle")))
	for _, text := range []string{"to a file that is missing", "to one that is there"} {
		must(t, writeOutput(link, io.Discard, writeText(text)))
		wantKind(t, link, fs.ModeSymlink)
		wantText(t, filepath.Join(dir, "real"), text)
	}
	loop := filepath.Join(dir, "loop")
	must(t, os.Symlink("loop", loop))
	if err := writeOutput(loop, io.Discard, writeText("x")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop of links gives %v, want %v", err, syscall.ELOOP)
	}
}

// TestOutputFIFO writes to a FIFO, which stays one.
func TestOutputFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(path, 0o600))
	got := make(chan string)
	go func() {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		got <- string(b)
	}()
	err := writeOutput(path, io.Discard, writeText("through"))
	wantKind(t, path, fs.ModeNamedPipe)
	must(t, err)
	if s := <-got; s != "through" {
		t.Errorf("read %q, want what was written", s)
	}
}

// TestOutputDevice writes to /dev/null by a symbolic link of its own, so that a failure does not damage the host's device.
func TestOutputDevice(t *testing.T) {
	link := filepath.Join(t.TempDir(), "null")
	must(t, os.Symlink("/dev/null", link))
	must(t, writeOutput(link, io.Discard, writeText("away")))
	wantKind(t, link, fs.ModeSymlink)
	wantKind(t, "/dev/null", fs.ModeDevice|fs.ModeCharDevice)
}

// TestOutputStdout gives the name of the file that standard output is. The text is appended there.
func TestOutputStdout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, writeText("before, ")(f))
	must(t, writeOutput(path, f, writeText("after")))
	wantText(t, path, "before, after")
}

// TestOutputDirectory wants an error for a directory.
func TestOutputDirectory(t *testing.T) {
	if err := writeOutput(t.TempDir(), io.Discard, writeText("x")); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("error %v, want %v", err, syscall.EISDIR)
	}
}
