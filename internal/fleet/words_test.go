// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	"culvert/internal/cluster"
)

// TestForgetThere refuses to forget a node that is there, and notes what it has forgotten.
func TestForgetThere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a", "b")
	if err := b.apply(doc("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Forget(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "node b is there") {
		t.Errorf("one that is there: %v", err)
	}
	b.lose("b")
	if err := b.Forget(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	h, err := b.History(t.Context(), true)
	if err != nil || len(h.Audit) == 0 || h.Audit[len(h.Audit)-1].Did != "forget" {
		t.Errorf("%+v, error %v", h, err)
	}
}

// TestNobody names the nodes that are there where none is meant.
func TestNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("n1")
	scope := cluster.Scope{Kind: cluster.ScopeNode, Name: "n9"}
	if _, err := b.Where(t.Context(), []string{"192.0.2.1"}, scope); err == nil || !strings.Contains(err.Error(), "there is n1") {
		t.Errorf("where: %v", err)
	}
	if _, err := b.Urgent(t.Context(), rule("x"), scope, 0, false); err == nil || !strings.Contains(err.Error(), "there is n1; --force writes the change") {
		t.Errorf("an urgent change: %v", err)
	}
}
