// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// EnumNames returns the values of an enum by their names, from the BTF of an object. Load is LoadPipeline or another function
// of this package. EnumNames panics if there is no such enum.
func EnumNames(load func() (*ebpf.CollectionSpec, error), enum string) map[string]uint64 {
	spec, err := load()
	if err != nil {
		panic(err) // the object is part of the binary
	}
	var e *btf.Enum
	if err := spec.Types.TypeByName(enum, &e); err != nil {
		panic(fmt.Errorf("enum %s: %w", enum, err))
	}
	names := make(map[string]uint64, len(e.Values))
	for _, v := range e.Values {
		names[v.Name] = v.Value
	}
	return names
}

// FieldName returns the name of a constant as users see it: in lower case, with dashes.
func FieldName(c string) string {
	return strings.ToLower(strings.ReplaceAll(c, "_", "-"))
}
