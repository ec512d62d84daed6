// SPDX-License-Identifier: Apache-2.0

// Package runstate passes what a process that serves a data plane knows to commands, by files of root's in /run/culvert.
package runstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// file is what is in a file.
type file struct {
	// Plane is the data plane that the rest is about.
	Plane uint64 `json:"plane"`
	State any    `json:"state"`
}

func path(kind string, netns uint32, name string) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("%s-%d-%s.json", kind, netns, url.PathEscape(name)))
}

// Writer is the process that knows. It holds a lock on the file that it has left, which the kernel drops with the
// process: so it can be told from one that was killed, in whatever PID namespace it is.
type Writer struct {
	kind string
	path string
	file *os.File
}

// NewWriter is for what is known of one kind, "bgp" say, about the data planes of a name. Nothing is written yet.
func NewWriter(kind string, netns uint32, name string) *Writer {
	return &Writer{kind: kind, path: path(kind, netns, name)}
}

// Write leaves the state for a data plane, as JSON, in one step.
func (w *Writer) Write(plane uint64, state any) error {
	if err := w.write(plane, state); err != nil {
		return fmt.Errorf("writing the state %q of a data plane: %w", w.kind, err)
	}
	return nil
}

func (w *Writer) write(plane uint64, state any) error {
	if err := trust.MakeDir(trust.RunDir); err != nil {
		return err
	}
	text, err := json.Marshal(file{Plane: plane, State: state})
	if err != nil {
		return err
	}
	unlock, err := lockDir()
	if err != nil {
		return err
	}
	defer unlock()
	tmp := fmt.Sprintf("%s.%d", w.path, os.Getpid())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	// The lock comes before the name, and the old one goes after it.
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = os.Rename(tmp, w.path)
	}
	if err != nil {
		f.Close()
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file = f
	return nil
}

// Close takes away what was written. It leaves alone what another process has written meanwhile.
func (w *Writer) Close() {
	if w.file == nil {
		return
	}
	if same(w.file, w.path) {
		_ = os.Remove(w.path)
	}
	w.file.Close()
	w.file = nil
}

func same(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// Read puts what the process that serves a data plane has written into state. It is not known while it has written nothing,
// and where /run/culvert is not the process's. What another process has left, because it was killed, is not read.
func Read(kind string, netns uint32, name string, plane uint64, state any) (known bool, err error) {
	known, err = read(path(kind, netns, name), plane, state)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the state %q of a data plane: %w", kind, err)
	}
	return known, nil
}

// readTries bounds how often a file may be replaced while it is being read.
const readTries = 100

func read(path string, plane uint64, state any) (known bool, err error) {
	if err := trust.Dir(trust.RunDir); err != nil {
		return false, err
	}
	for range readTries {
		text, held, err := readHeld(path)
		if err != nil || !held {
			return false, err
		}
		if text == nil {
			continue
		}
		f := file{State: state}
		if err := json.Unmarshal(text, &f); err != nil {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		return f.Plane == plane, nil
	}
	return false, nil
}

// readHeld returns what a file has and whether its writer lives: no text if the file was replaced meanwhile.
func readHeld(path string) (text []byte, held bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, !same(f, path), err
	}
	text, err = io.ReadAll(f)
	return text, true, err
}
