// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/sourcestate"
)

// TestSources looks at what 'lb show' and 'status' say of sources of backends.
func TestSources(t *testing.T) {
	now := time.Now()
	sources := []sourcestate.Source{
		{VIP: "192.0.2.1:80/tcp", Name: "web.example", Kind: "dns", State: sourcestate.OK, Since: now.Add(-time.Minute), Backends: 3, Leaving: 1},
		{VIP: "192.0.2.1:80/tcp", Name: "/a", Kind: "file", State: sourcestate.Failing, Since: now.Add(-time.Second), Backends: 1, Why: "gone"},
	}
	text := strings.Join((VIP{Service: "192.0.2.1:80/tcp", Sources: sources}).lines(0, now), "\n")
	for _, want := range []string{"\n  source dns web.example  ok 1m00s  3 backends, 1 leaving\n", "\n  source file /a  failing 1s  1 backend  gone"} {
		if !strings.Contains(text+"\n", want) {
			t.Errorf("'lb show' has no %q:\n%s", want, text)
		}
	}
	c := Counts{VIPs: 1, Backends: 4}
	c.addSources(sources[:1])
	if got := c.String(); got != "1 VIP, 4 backends, 1 source" {
		t.Errorf("status: %s", got)
	}
	c.addSources(sources[1:])
	if got := c.String(); got != "1 VIP, 4 backends, 2 sources (1 in trouble: culvert lb show)" || strings.Join(c.Troubled, "|") != "/a of VIP 192.0.2.1:80/tcp: failing" {
		t.Errorf("status: %s, %q", got, c.Troubled)
	}
}
