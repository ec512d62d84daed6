// SPDX-License-Identifier: Apache-2.0

// Package runstate passes the state of a process that serves a data plane to commands. The state is in files in
// /run/culvert, which belongs to root.
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

// file is the content of a file, as JSON.
type file struct {
	// Plane identifies the data plane that the state belongs to.
	Plane uint64 `json:"plane"`
	State any    `json:"state"`
}

func path(kind string, netns uint32, name string) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("%s-%d-%s.json", kind, netns, url.PathEscape(name)))
}

// Writer writes the state of this process. It holds a lock on the file, which the kernel drops when the process ends. So
// readers recognize the file of a killed process, whatever PID namespace it was in.
type Writer struct {
	kind string
	path string
	file *os.File
}

// NewWriter makes a Writer for state of one kind, such as "bgp", about the data planes of a name in a network namespace. It
// writes nothing yet.
func NewWriter(kind string, netns uint32, name string) *Writer {
	return &Writer{kind: kind, path: path(kind, netns, name)}
}

// Write atomically replaces the state for a data plane. state is marshaled as JSON.
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
	// Lock the new file before it gets the name, and unlock the old one afterwards.
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

// Close removes the file, unless another process has replaced it meanwhile.
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

// same reports whether path is the name of f.
func same(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// Read unmarshals into state what the process that serves a data plane has written. known is false if the process has written
// nothing, or if it has another /run/culvert. Files of killed processes are ignored.
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

// readTries is how often read opens a file that is replaced meanwhile.
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

// readHeld returns the content of a file. held is false if its writer no longer runs. text is nil, and held true, if the
// file was replaced meanwhile.
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
