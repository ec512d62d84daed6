// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"culvert/internal/stats"
)

const (
	macSentence = "the MAC is wrong under all keys"
	tagSentence = "with more VLAN tags than the filter looks behind"
)

// explained returns a router whose reasons have sentences and have counted multiples of n packets.
func explained(n uint64) Router {
	mac, tags, over := reason("punt", "scion-mac", 5*n), reason("drop", "filter-tags", 9*n), limited("scion-mac", 2*n)
	mac.Text, tags.Text, over.Text = macSentence, tagSentence, macSentence
	return Router{ID: "br1", NetNS: 1, Served: true, noSCION: true, Interfaces: []Interface{port("eth1", 0, mac, tags, over)}}
}

func TestVerboseText(t *testing.T) {
	r := Report{Routers: []Router{explained(1)}, Decap: []Decap{{Interface: "eth0", Mode: "native", Reasons: []stats.Reason{
		{Name: "gue", Verdict: "decap", Text: "GUE: taken off", Packets: 1, Bytes: 100},
	}}}}
	var b bytes.Buffer
	if err := r.WriteText(&b, epoch, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
    drop      filter-tags   9            900B  with more VLAN tags than the filter looks behind
    punt      scion-mac     5            500B  the MAC is wrong under all keys
    limited   scion-mac     2            200B  kept from the slow path by its limit: the MAC is wrong under all keys
`, "\n    decap     gue  1          100B  GUE: taken off\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := r.WriteText(&b, epoch, false); err != nil || strings.Contains(b.String(), "MAC") || strings.Contains(b.String(), "taken") {
		t.Errorf("without verbose: %v\n%s", err, b.String())
	}
}

func TestSentencesInJSON(t *testing.T) {
	var b bytes.Buffer
	if err := (Report{Routers: []Router{explained(1)}}).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Routers []struct {
			Interfaces []struct {
				Reasons []struct{ Reason, Text string }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if first := got.Routers[0].Interfaces[0].Reasons[0]; first.Reason != "scion-mac" || first.Text != macSentence {
		t.Errorf("%+v in %s", first, b.String())
	}
}

func TestVerboseLines(t *testing.T) {
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		o := WatchOptions{Interval: time.Millisecond, Count: 1, Out: &b, Verbose: verbose}
		look := func() (sample, error) { return at(1, explained(2)), nil }
		if err := watchLines(context.Background(), o, at(0, explained(1)), look); err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut(b.String(), "\n")
		if strings.HasSuffix(head, "  EXPLAINED") != verbose || strings.HasSuffix(rest, "  kept from the slow path by its limit: "+macSentence+"\n") != verbose {
			t.Errorf("verbose %t:\n%s", verbose, b.String())
		}
	}
}

// TestExplainedScreen turns sentences below the reasons on with -v and with key v. They are shown as long as there is room.
func TestExplainedScreen(t *testing.T) {
	newTable := func(verbose bool, width, height int) *testTable {
		o := WatchOptions{Interval: time.Second, Verbose: verbose}
		s := newTestTable(o, at(0, explained(1)))
		s.take(at(1, explained(2)))
		return s.resized(width, height)
	}
	const wrapped = "\n          kept from the slow path by its limit: the MAC is wrong\n          under all keys\n"
	trimmed := func(s *testTable) string {
		var lines []string
		for line := range strings.Lines(s.View()) {
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		return strings.Join(lines, "\n")
	}
	s := newTable(true, 66, 24)
	if !strings.Contains(trimmed(s), wrapped) {
		t.Errorf("no %s in\n%s", wrapped, s.View())
	}
	s.Press("v")
	if strings.Contains(s.View(), "MAC") {
		t.Errorf("a sentence after v\n%s", s.View())
	}
	s.Press("v")
	if !strings.Contains(trimmed(s), wrapped) {
		t.Errorf("no %s after v twice in\n%s", wrapped, s.View())
	}
	// The fastest reason is explained first. No reason is left out to make room for the sentence of another.
	view := newTable(true, 80, 12).View()
	if !strings.Contains(view, tagSentence) || strings.Contains(view, macSentence) || !strings.Contains(view, "limited scion-mac") {
		t.Errorf("12 lines:\n%s", view)
	}
}
