// SPDX-License-Identifier: Apache-2.0

package peerstate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/testbed"
)

// well returns the state of an exchange without problems.
func well() *State {
	return &State{
		Listen: netip.MustParseAddrPort("10.0.0.1:9482"), Bulk: BulkDone, Limit: 100, Flows: map[string]uint64{Installed: 3},
		Peers: []Peer{{
			Address: netip.MustParseAddrPort("10.0.0.2:9482"), Up: true, Since: time.Unix(1000, 0), Datagrams: map[string]uint64{Accepted: 7},
		}},
	}
}

// TestProblems has a line for each thing that is wrong, and none for what is not.
func TestProblems(t *testing.T) {
	if all := (*State)(nil).Problems(); len(all) > 0 {
		t.Errorf("without an exchange: %+v", all)
	}
	if all := well().Problems(); len(all) > 0 {
		t.Errorf("all is well, but for %+v", all)
	}
	for _, tt := range []struct {
		change func(*State)
		severe bool
		want   string
	}{
		{func(s *State) { s.Peers[0].Up = false }, true, "peer 10.0.0.2:9482: nothing has been heard since"},
		{func(s *State) { s.Peers[0].OtherSeed = true }, true, "another seed"},
		{func(s *State) { s.Peers[0].OtherRings = true }, false, "other rings"},
		{func(s *State) { s.Peers[0].Wrong = "it is cut" }, false, "it is cut"},
		{func(s *State) { s.Bulk, s.BulkError = BulkIncomplete, "no answer" }, false, "no answer"},
		{func(s *State) { s.Untold = 9 }, false, "9 flows"},
		{func(s *State) { s.Held = 100 }, false, "further ones are not taken"},
	} {
		s := well()
		tt.change(s)
		all := s.Problems()
		if len(all) != 1 || all[0].Severe != tt.severe || !strings.Contains(all[0].Text, tt.want) || all[0].Command == "" {
			t.Errorf("%+v, want %q", all, tt.want)
		}
	}
}

// collector collects the metrics of a state.
type collector struct{ s *State }

func (collector) Describe(ch chan<- *prometheus.Desc)   { Describe(ch) }
func (c collector) Collect(ch chan<- prometheus.Metric) { Collect(c.s, ch) }

// TestMetrics wants what is counted, with zeros for results that have not been seen, and nothing without an exchange.
func TestMetrics(t *testing.T) {
	if text, err := testbed.Metrics(collector{}); err != nil || text != "" {
		t.Errorf("%v: %s", err, text)
	}
	text, err := testbed.Metrics(collector{well()})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, want := range []string{
		"culvert_lb_peer_up peer=10.0.0.2:9482 1", "culvert_lb_peer_agrees peer=10.0.0.2:9482 1",
		"culvert_lb_peer_datagrams_total peer=10.0.0.2:9482 result=accepted 7", "culvert_lb_peer_datagrams_total peer=10.0.0.2:9482 result=lost 0",
		"culvert_lb_peer_flows_total result=installed 3", "culvert_lb_peer_flows_total result=conflict 0",
		"culvert_lb_peer_bulk_state state=done 1", "culvert_lb_peer_bulk_state state=asking 0", "culvert_lb_peer_flows_limit 100",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
