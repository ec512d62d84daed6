// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// layout describes where the fields of a type are, in bits, with those of the types in it.
func layout(t btf.Type, depth int) string {
	t = btf.UnderlyingType(t)
	size, _ := btf.Sizeof(t)
	out := fmt.Sprintf("%d", size)
	if depth > 8 {
		return out
	}
	members := func(all []btf.Member) {
		for _, m := range all {
			out += fmt.Sprintf(" %s@%d/%d(%s)", m.Name, m.Offset, m.BitfieldSize, layout(m.Type, depth+1))
		}
	}
	switch t := t.(type) {
	case *btf.Struct:
		members(t.Members)
	case *btf.Union:
		members(t.Members)
	case *btf.Array:
		out += fmt.Sprintf("[%d](%s)", t.Nelems, layout(t.Type, depth+1))
	}
	return out
}

// TestLayoutsOfArches: maps have the same layout in the objects of both architectures, so what Go knows of one holds for the other.
func TestLayoutsOfArches(t *testing.T) {
	names, err := fs.Glob(allObjects, "*_x86_bpfel.o")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d objects, %v", len(names), err)
	}
	load := func(name string) *ebpf.CollectionSpec {
		b, err := allObjects.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return spec
	}
	compared := 0
	for _, name := range names {
		x86, arm64 := load(name), load(strings.Replace(name, "_x86_", "_arm64_", 1))
		if len(x86.Maps) != len(arm64.Maps) || len(x86.Variables) != len(arm64.Variables) {
			t.Errorf("%s: %d maps and %d constants, on arm64 %d and %d", name, len(x86.Maps), len(x86.Variables), len(arm64.Maps),
				len(arm64.Variables))
		}
		for m, spec := range x86.Maps {
			other := arm64.Maps[m]
			if other == nil {
				t.Errorf("%s: no map %s on arm64", name, m)
				continue
			}
			if spec.Type != other.Type || spec.KeySize != other.KeySize || spec.ValueSize != other.ValueSize || spec.Flags != other.Flags {
				t.Errorf("%s: map %s is %v, on arm64 %v", name, m, spec, other)
			}
			if spec.Value == nil || strings.HasPrefix(m, ".") {
				continue // constants are set by name
			}
			compared++
			if a, b := layout(spec.Value, 0), layout(other.Value, 0); a != b {
				t.Errorf("%s: a value of %s is %s, on arm64 %s", name, m, a, b)
			}
		}
	}
	if compared < 20 {
		t.Errorf("%d maps compared", compared)
	}
}
