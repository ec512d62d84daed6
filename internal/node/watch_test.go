// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/lb/lbstage"
	"culvert/internal/stage"
)

// watchedStage is a stage whose loops turn until err is set.
type watchedStage struct {
	stage.Prepared
	name string
	err  error
}

func (s *watchedStage) Name() string { return s.name }
func (s *watchedStage) Alive() error { return s.err }

// TestWatch has a socket in the place of systemd's. The process is ready once it is attached and no stage is starting any more,
// and the watchdog gets nothing while a loop stands still.
func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	var log strings.Builder
	w := newWatch(slog.New(slog.NewTextHandler(&log, nil)))
	w.period = 20 * time.Second
	lb := &watchedStage{name: "lb"}
	w.serves(lb)
	w.serves(fakeStage{name: "filter"}) // it has no loops to watch

	at := time.Now()
	look := func(later time.Duration, s situation, want ...string) {
		t.Helper()
		at = at.Add(later)
		w.look(s, at)
		w.systemd.Stopping() // so that reading ends
		var got []string
		for buf := make([]byte, 4096); ; {
			if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			size, err := socket.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			if string(buf[:size]) == "STOPPING=1" {
				break
			}
			got = append(got, string(buf[:size]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("systemd gets %q, want %q", got, want)
		}
	}
	states := func(lb string) []datapath.StageState {
		return []datapath.StageState{{Stage: "filter", State: datapath.StageReady}, {Stage: "lb", State: lb}}
	}
	starting := situation{name: "edge", plane: true, stages: states(datapath.StageStarting)}
	waiting := situation{name: "edge", plane: true, stages: states(datapath.StageReady)}
	flowing := situation{name: "edge", plane: true, on: []string{"eth1", "eth2"}, stages: states(datapath.StageReady)}

	look(0, starting, "STATUS=edge on no interface: filter ready, lb starting", "EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=1")
	look(time.Second, starting)
	look(0, waiting, "STATUS=edge on no interface: filter ready, lb ready")
	look(10*time.Second, waiting, "EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=1")
	look(0, flowing, "STATUS=edge on eth1, eth2: filter ready, lb ready", "READY=1")
	look(10*time.Second, flowing, "WATCHDOG=1")
	lb.err = errors.New("the loop of a health check has not turned for 25s")
	look(10*time.Second, flowing, "STATUS=not alive: lb: the loop of a health check has not turned for 25s; edge on eth1, eth2: filter ready, lb ready")
	look(10*time.Second, flowing)
	lb.err = nil
	look(0, flowing, "STATUS=edge on eth1, eth2: filter ready, lb ready", "WATCHDOG=1")
	out := flowing
	out.stages = []datapath.StageState{{Stage: "filter", State: datapath.StageReady}, {Stage: "lb", State: datapath.StageOut, Why: "no sockets"}}
	look(0, out, "STATUS=edge on eth1, eth2: filter ready, lb out (no sockets)")
	w.serves(fakeStage{name: "lb"})
	lb.err = errors.New("of a stage that is served no more")
	look(10*time.Second, out, "WATCHDOG=1")
	for text, want := range map[string]int{"systemd starts the process again unless that changes": 1, "all loops of the process turn again": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q is logged %d times, want %d: %s", text, n, want, &log)
		}
	}
	if !out.flows() || starting.flows() || waiting.flows() {
		t.Error("flows is wrong")
	}
}

// offStage is a stage that only removes what an earlier file had.
type offStage struct{ fakeStage }

func (offStage) On() bool { return false }

// TestSituation wants only those stages that are on.
func TestSituation(t *testing.T) {
	u := &up{name: "edge", file: stage.File{Node: &config.Node{Tables: map[string]config.Table{"filter": nil}}}, prepared: []stage.Prepared{
		offStage{fakeStage{name: "filter"}}, offStage{fakeStage{name: "lb"}}, fakeStage{name: "route"},
	}}
	s := newStages(u, slog.New(slog.DiscardHandler))
	if got, want := s.now().String(), "edge, slow path alone: route starting"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if u.file.Node.Tables["lb"] = new(lbstage.Table); !u.isOn(u.prepared[1]) || u.isOn(u.prepared[0]) {
		t.Error("a stage is on because of its table")
	}
	s.set("filter", datapath.StageOut, errors.New("no sockets"))
	if got, want := s.now().String(), "edge, slow path alone: filter out (no sockets), route starting"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
