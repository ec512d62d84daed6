// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/peerstate"
)

// TestPageCertificates makes certificates as docs/lb-peers.md says. Machines that have them tell each other their flows.
func TestPageCertificates(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lb-peers.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?s)\n    openssl req .*?\n    done\n`).FindString(string(page))
	if commands == "" {
		t.Fatal("docs/lb-peers.md makes no certificates")
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", strings.ReplaceAll(commands, "=10.0.0.", "=127.0.0."))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	all := tier(t, 3)
	for i, m := range all {
		name := "lb" + string(rune('1'+i))
		o := m.options(all)
		o.Bulk = &Bulk{Cert: file(name + ".crt"), Key: file(name + ".key"), CA: file("ca.crt"), Timeout: 2 * time.Minute}
		m.start(o)
	}
	for _, m := range all {
		m.wait("it is ready", m.s.Ready)
		if s := m.s.State(); s.Bulk != peerstate.BulkDone || s.BulkError != "" {
			t.Errorf("%s: ready with %+v", m.at, s)
		}
	}
}
