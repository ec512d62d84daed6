// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
)

// TestVerbsHaveSchemas wants a schema in docs/api.yaml for each verb with -j, and none for others.
func TestVerbsHaveSchemas(t *testing.T) {
	verbs := newAnswers(t).page["x-culvert-verbs"].(map[string]any)
	left := make(map[string]bool)
	for words := range verbs {
		left[words] = true
	}
	leaves(newRootCmd(), func(cmd *cobra.Command) {
		if !cli.HasJSON(cmd) {
			return
		}
		if !left[name(cmd)] {
			t.Errorf("'culvert %s -j' has no schema: add it to internal/genapi/verbs.go", name(cmd))
		}
		delete(left, name(cmd))
	})
	for words := range left {
		t.Errorf("'culvert %s' has a schema and no -j", words)
	}
}

// TestVerbsPrint holds what verbs without a path print with -j against their schemas, also what they print when something is wrong.
// TestBenchPrints and TestBlastIntoSink do so for 'bench' and 'gen blast'.
func TestVerbsPrint(t *testing.T) {
	b := newPairsBed(t)
	page := newAnswers(t)
	file := b.file("c.toml", allStages)
	wrong := b.file("wrong.toml", "interfaces = ['ft0']\n[filter]\n[[filter.rule]]\naction = 'dropp'\n")
	pcap := b.pcapOf(frame("192.0.2.7", 6), frame("198.51.100.1", 5))
	b.expect(0, "", "attach", "-c", file)
	b.expect(0, "", "lb", "decap", "add", "fx0", "--from", "10.0.0.0/8", "--local", "10.1.1.1")
	for _, c := range []struct {
		status     int
		verb, args string
	}{
		{0, "check", "-c " + file},
		{1, "check", "-c " + wrong},
		{-1, "doctor", "-i ft0"},
		{0, "filter list", ""},
		{0, "filter set list", ""},
		{0, "filter set show", "bad"},
		{0, "filter test", pcap},
		{0, "filter top", "--once"},
		{-1, "lb decap show", ""},
		{0, "lb explain", "192.0.2.9:80/tcp 198.51.100.1:4000"},
		{0, "lb flows", ""},
		{0, "lb flows", "--totals"},
		{0, "lb show", ""},
		{1, "reload", ""},
		{0, "route show", ""},
		{-1, "route get", "192.0.2.200"},
		{-1, "route check", ""},
		{0, "lab list", ""},
		{0, "status", ""},
		{0, "version", ""},
		{0, "filter add", "drop icmp"},
		{0, "filter flush", ""},
	} {
		args := append([]string{"-j"}, strings.Fields(c.verb+" "+c.args)...)
		status, stdout, stderr := culvert(t, args...)
		if c.status >= 0 && status != c.status || stdout == "" {
			t.Errorf("culvert %q: status %d, %q, %q", args, status, stdout, stderr)
			continue
		}
		page.printed(t, c.verb, stdout)
	}
	b.expect(0, "", "detach", "--all")
}
