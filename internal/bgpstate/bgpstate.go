// SPDX-License-Identifier: Apache-2.0

// Package bgpstate passes the state of BGP sessions from the process that has them to commands, by a file of root's in
// /run/culvert.
package bgpstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"culvert/internal/trust"
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
	PID      int       `json:"pid"`
	Sessions []Session `json:"sessions"`
}

func path(netns uint32, name string) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("bgp-%d-%s.json", netns, url.PathEscape(name)))
}

// Write leaves the sessions of this process for a data plane, in one step.
func Write(netns uint32, name string, sessions []Session) error {
	if err := trust.MakeDir(trust.RunDir); err != nil {
		return err
	}
	text, err := json.Marshal(file{PID: os.Getpid(), Sessions: sessions})
	if err != nil {
		return err
	}
	to := path(netns, name)
	tmp := fmt.Sprintf("%s.%d", to, os.Getpid())
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("writing the state of BGP sessions: %w", err)
	}
	if err := os.Rename(tmp, to); err != nil {
		return fmt.Errorf("writing the state of BGP sessions: %w", err)
	}
	return nil
}

// Remove is for the end of the sessions.
func Remove(netns uint32, name string) error { return os.Remove(path(netns, name)) }

// Read returns the sessions of the process that serves a data plane, none if it has none. What another process has
// left, because it was killed, is not read.
func Read(netns uint32, name string, server int) ([]Session, error) {
	if err := trust.Dir(trust.RunDir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	text, err := os.ReadFile(path(netns, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of BGP sessions: %w", err)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("reading the state of BGP sessions: %s: %w", path(netns, name), err)
	}
	if f.PID != server {
		return nil, nil
	}
	return f.Sessions, nil
}
