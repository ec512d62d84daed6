// SPDX-License-Identifier: Apache-2.0

// Package bgpstate passes the state of BGP sessions from the process that has them to commands, by a file of root's in
// /run/culvert.
package bgpstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// Session is the one with a neighbor.
type Session struct {
	Neighbor netip.Addr `json:"neighbor"`
	ASN      uint32     `json:"asn"`
	// State is RFC 4271's name in lower case.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Announced are the prefixes that it has been told of, and has not refused with the session. Whether it uses them BGP
	// does not tell.
	Announced []netip.Prefix `json:"announced"`
	// Error says why there is no session, or why prefixes are not announced. One line, or empty.
	Error string `json:"error,omitempty"`
}

// Established tells whether there is a session.
func (s Session) Established() bool { return s.State == "established" }

// file is what is in the file.
type file struct {
	// Plane is the data plane that the sessions announce VIPs of.
	Plane    uint64    `json:"plane"`
	Sessions []Session `json:"sessions"`
}

func path(netns uint32, name string) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("bgp-%d-%s.json", netns, url.PathEscape(name)))
}

// Writer is the process that has the sessions. It holds a lock on the file that it has left, which the kernel drops with the
// process: so it can be told from one that was killed, in whatever PID namespace it is.
type Writer struct {
	path string
	file *os.File
}

// NewWriter is for the data planes of a name. Nothing is written yet.
func NewWriter(netns uint32, name string) *Writer { return &Writer{path: path(netns, name)} }

// Write leaves the sessions for a data plane, in one step.
func (w *Writer) Write(plane uint64, sessions []Session) error {
	if err := w.write(plane, sessions); err != nil {
		return fmt.Errorf("writing the state of BGP sessions: %w", err)
	}
	return nil
}

func (w *Writer) write(plane uint64, sessions []Session) error {
	if err := trust.MakeDir(trust.RunDir); err != nil {
		return err
	}
	text, err := json.Marshal(file{Plane: plane, Sessions: sessions})
	if err != nil {
		return err
	}
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

// Close is for the end of the sessions. It leaves alone what another process has written meanwhile.
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

// Read returns the sessions of the process that serves a data plane. They are not known while it has told nothing, and where
// /run/culvert is not the process's. What another process has left, because it was killed, is not read.
func Read(netns uint32, name string, plane uint64) (sessions []Session, known bool, err error) {
	sessions, known, err = read(path(netns, name), plane)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the state of BGP sessions: %w", err)
	}
	return sessions, known, nil
}

// readTries bounds how often a file may be replaced while it is being read.
const readTries = 100

func read(path string, plane uint64) (sessions []Session, known bool, err error) {
	if err := trust.Dir(trust.RunDir); err != nil {
		return nil, false, err
	}
	for range readTries {
		text, held, err := readHeld(path)
		if err != nil || !held {
			return nil, false, err
		}
		if text == nil {
			continue
		}
		var f file
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		return f.Sessions, f.Plane == plane, nil
	}
	return nil, false, nil
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
