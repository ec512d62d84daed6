// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// EnumNames reads an enum from the type information of an object, as LoadPipeline.
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

// FieldName is the name of a constant as people read it: in lower case with dashes.
func FieldName(c string) string {
	return strings.ToLower(strings.ReplaceAll(c, "_", "-"))
}
