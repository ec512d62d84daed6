// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPeersBuildIsIdempotent(t *testing.T) {
	p := testPeers(t)
	before := modTimes(t, p)
	var out strings.Builder
	if err := p.Build(t.Context(), &out); err != nil || out.Len() != 0 {
		t.Errorf("a second build returned %v and wrote %q", err, out.String())
	}
	for name, at := range modTimes(t, p) {
		if before[name] != at {
			t.Errorf("%s was built again", name)
		}
	}
}

func modTimes(t *testing.T, p Peers) map[string]string {
	t.Helper()
	times := make(map[string]string)
	for _, prog := range peerPrograms {
		st, err := os.Stat(filepath.Join(p.Bin, prog.name))
		if err != nil {
			t.Fatal(err)
		}
		times[prog.name] = st.ModTime().String()
	}
	return times
}

func TestPeersWithoutModule(t *testing.T) {
	built := testPeers(t)
	if err := (Peers{Bin: built.Bin}).Build(t.Context(), nil); err != nil {
		t.Errorf("all programs built, without a module: %v", err)
	}
	err := Peers{Bin: t.TempDir()}.Build(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "checkout") || !strings.Contains(err.Error(), "scion-pki") {
		t.Errorf("no program built, without a module: %v", err)
	}
}

func TestPeersBuildFailure(t *testing.T) {
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte("module x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.sum"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := Peers{Module: module, Bin: t.TempDir()}
	for range 2 { // the second build must not take the first for successful
		err := p.Build(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "router") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("a module without the programs: %v", err)
		}
	}
}
