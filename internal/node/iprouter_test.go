// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/edit"
	"culvert/internal/route/routeplane"
	"culvert/internal/testbed"
)

// TestIPRouterAlone has a data plane with an IP router and no SCION router. Commands for keys refuse it by name, and it is
// detached like any other.
func TestIPRouterAlone(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "nd0", "nd1")
	const name = "node-route-test"
	o := datapath.Options{Name: name, Interfaces: []string{"nd0", "nd1"}, Parts: []datapath.Part{routeplane.NewPart(routeplane.Options{Blocks4: 1, Blocks6: 1})}}
	inst, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() { _ = inst.DetachAll() }()

	if !slices.Contains(IPRouters(), name) || slices.Contains(SCIONRouters(), name) || !slices.Contains(Routers(), name) {
		t.Errorf("IP routers %v, SCION routers %v, all %v", IPRouters(), SCIONRouters(), Routers())
	}
	var out bytes.Buffer
	for what, err := range map[string]error{
		"add":    Change(t.Context(), name, &edit.KeyAdd{Key: "AAECAwQFBgcICQoLDA0ODw=="}, ChangeOutput{Out: &out}),
		"remove": Change(t.Context(), name, &edit.KeyDel{Force: true}, ChangeOutput{Out: &out}),
		"list":   edit.ListKeys(name, true, &out),
	} {
		if err == nil || err.Error() != "data plane "+name+" is no SCION router: see 'culvert status'" || out.Len() > 0 {
			t.Errorf("key %s: %v, and %q", what, err, out.String())
		}
	}
	if err := Detach([]string{"nd0"}, &out); err != nil {
		t.Fatal(err)
	}
	want := "detached from nd0\nrouter " + name + " is still served by a process, which now works only on nd1\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	if err := Detach([]string{"nd1"}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), ", which ends or attaches again, as its configuration says\n") || slices.Contains(IPRouters(), name) {
		t.Errorf("got %q, left are %v", out.String(), IPRouters())
	}
}
