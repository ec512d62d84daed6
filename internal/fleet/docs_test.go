// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/cluster"
	"culvert/internal/config"
	"culvert/internal/lb/lbstage"
	"culvert/internal/stages"
)

// pageBlock returns the first example in docs/fleet.md that has a line. Blank lines are part of it.
func pageBlock(t *testing.T, line string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for l := range strings.Lines(string(page)) {
		text, indented := strings.CutPrefix(l, "    ")
		switch {
		case indented || strings.TrimSpace(l) == "" && block.Len() > 0:
			block.WriteString(text)
		case strings.Contains("\n"+block.String(), "\n"+line+"\n"):
			return block.String()
		default:
			block.Reset()
		}
	}
	t.Fatalf("docs/fleet.md has no example with %s", line)
	return ""
}

// TestPageExamples has the node's file and the document of docs/fleet.md make a load balancer, and the document be applied.
func TestPageExamples(t *testing.T) {
	t.Parallel()
	own, document := pageBlock(t, "[cluster]"), pageBlock(t, "[[lb.vip]]")
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := stages.Load(path, config.Remote{Name: "etcd:role/lb", Text: []byte(document)})
	if err != nil {
		t.Fatal(err)
	}
	table, _ := n.Tables[lbstage.Stage{}.Name()].(*lbstage.Table)
	if table == nil || len(table.VIP) != 1 || len(table.VIP[0].Backend) != 2 || table.BGP == nil || n.Cluster == nil || n.Cluster.Node != "lb1" {
		t.Errorf("%+v with cluster %+v", table, n.Cluster)
	}
	b := newBed(t)
	b.add("lb1:lb")
	c := Change{Scope: cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"}, File: "lb.toml", Text: document}
	if err := b.apply(c); err != nil || b.current().Revision != 1 {
		t.Errorf("%v, current %+v\n%s", err, b.current(), b.out)
	}
}
