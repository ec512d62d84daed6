// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/scionproto/scion/router/control"
)

// fakeSessions has states of BFD sessions that a test sets.
type fakeSessions struct {
	external, sibling map[uint16]control.InterfaceState
}

func (f *fakeSessions) ListInternalInterfaces() ([]control.InternalInterface, error) { return nil, nil }

func (f *fakeSessions) ListExternalInterfaces() (list []control.ExternalInterface, _ error) {
	for id, state := range f.external {
		list = append(list, control.ExternalInterface{IfID: id, State: state})
	}
	return list, nil
}

func (f *fakeSessions) ListSiblingInterfaces() (list []control.SiblingInterface, _ error) {
	for id, state := range f.sibling {
		list = append(list, control.SiblingInterface{IfID: id, State: state})
	}
	return list, nil
}

func TestMirrorBFD(t *testing.T) {
	r, err := Load(writeTOML(t, "v4", "br1", ""))
	if err != nil {
		t.Fatal(err)
	}
	const up, down = control.InterfaceUp, control.InterfaceDown
	sessions := &fakeSessions{
		external: map[uint16]control.InterfaceState{1: down, 300: up, 65535: down},
		sibling:  map[uint16]control.InterfaceState{2: down, 20: down, 3: down},
	}
	written := map[string]bool{}
	var fail error
	set := func(link int, up bool) error {
		if fail != nil {
			return fail
		}
		name := r.Datapath.Links[link].Name
		if _, twice := written[name]; twice {
			return fmt.Errorf("link %s written twice", name)
		}
		written[name] = up
		return nil
	}
	m := newBFDMirror(r, sessions, false, set)
	expect := func(step string, want map[string]bool) {
		t.Helper()
		m.sync()
		if !reflect.DeepEqual(written, want) {
			t.Errorf("%s: written %v, want %v", step, written, want)
		}
		clear(written)
	}
	expect("start", map[string]bool{"internal": true, "300": true, "1": false, "65535": false,
		"sibling->10.0.0.2:30042": false, "sibling->10.0.0.3:30042": false})
	expect("no change", map[string]bool{})
	sessions.external[1], sessions.sibling[2], sessions.sibling[20] = up, up, up
	expect("up", map[string]bool{"1": true, "sibling->10.0.0.2:30042": true})
	sessions.external[1] = down
	fail = errors.New("no")
	expect("refused", map[string]bool{})
	fail = nil
	expect("tried again", map[string]bool{"1": false})
}

// TestMirrorAdoptedBFD checks that a link which may carry traffic is not taken down by a session
// that has only just begun, and that one which comes up and goes down is.
func TestMirrorAdoptedBFD(t *testing.T) {
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	if err != nil {
		t.Fatal(err)
	}
	sessions := &fakeSessions{external: map[uint16]control.InterfaceState{1: control.InterfaceDown}}
	var written []string
	m := newBFDMirror(r, sessions, true, func(link int, up bool) error {
		written = append(written, fmt.Sprint(r.Datapath.Links[link].Name, up))
		return nil
	})
	expect := func(step string, want ...string) {
		t.Helper()
		m.sync()
		if !reflect.DeepEqual(written, want) {
			t.Errorf("%s: written %v, want %v", step, written, want)
		}
		written = nil
	}
	m.settled = time.Now().Add(time.Hour)
	expect("start", "internaltrue", "2true")
	sessions.external[1] = control.InterfaceUp
	expect("up", "1true")
	sessions.external[1] = control.InterfaceDown
	expect("down", "1false")

	m = newBFDMirror(r, sessions, true, m.setUp)
	m.settled = time.Now().Add(-time.Second)
	expect("never up", "internaltrue", "2true", "1false")
}

// TestMirrorLogs checks that the log gets a line for each change, and for a link that does not
// come up one line after a while.
func TestMirrorLogs(t *testing.T) {
	r, err := Load(writeTOML(t, "v4", "br1", ""))
	if err != nil {
		t.Fatal(err)
	}
	const up, down = control.InterfaceUp, control.InterfaceDown
	sessions := &fakeSessions{external: map[uint16]control.InterfaceState{1: down, 300: up, 65535: down}}
	m := newBFDMirror(r, sessions, false, func(int, bool) error { return nil })
	var lines []string
	m.info = func(message string, fields ...any) { lines = append(lines, fmt.Sprint(message, " ", fields[1])) }
	expect := func(step string, want ...string) {
		t.Helper()
		m.sync()
		m.sync()
		if !reflect.DeepEqual(lines, want) {
			t.Errorf("%s: logged %q, want %q", step, lines, want)
		}
		lines = nil
	}
	m.logDownAt = time.Now().Add(time.Hour)
	expect("start")
	sessions.external[1] = up
	expect("up", "Link up by BFD 1")
	m.logDownAt = time.Now()
	expect("late", "Link down by BFD 65535")
	sessions.external[1] = down
	expect("down", "Link down by BFD 1")
	sessions.external[1], sessions.external[65535] = up, up
	m.sync()
	if len(lines) != 2 {
		t.Errorf("two links up: logged %q", lines)
	}
}
