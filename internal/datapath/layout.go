// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"culvert/internal/bpfobj"
)

// MapLayouts returns a fingerprint of the keys and values of each map, by the map's name. It covers names, types and offsets
// of all members, from BTF. The fingerprint of a map of maps covers the values of the inner maps, and that of the counters
// the list of reasons.
func MapLayouts(spec *ebpf.CollectionSpec) map[string]string {
	layouts := make(map[string]string, len(spec.Maps))
	for name, m := range spec.Maps {
		var b strings.Builder
		writeLayout(&b, m.Key)
		b.WriteByte('/')
		writeLayout(&b, m.Value)
		if m.InnerMap != nil {
			b.WriteByte('/')
			writeLayout(&b, m.InnerMap.Value)
		}
		if name == bpfobj.PipelineMapCounters {
			b.WriteString(strings.Join(reasonNames(), ","))
		}
		sum := sha256.Sum256([]byte(b.String()))
		layouts[name] = hex.EncodeToString(sum[:8])
	}
	return layouts
}

func writeLayout(b *strings.Builder, t btf.Type) {
	switch t := t.(type) {
	case *btf.Typedef:
		writeLayout(b, t.Type)
	case *btf.Volatile:
		writeLayout(b, t.Type)
	case *btf.Const:
		writeLayout(b, t.Type)
	case *btf.Array:
		fmt.Fprintf(b, "[%d]", t.Nelems)
		writeLayout(b, t.Type)
	case *btf.Struct:
		writeMembers(b, t.Name, t.Members)
	case *btf.Union:
		writeMembers(b, t.Name, t.Members)
	case *btf.Int:
		fmt.Fprintf(b, "%s:%d", t.Name, t.Size)
	case nil:
		b.WriteString("none")
	default:
		fmt.Fprintf(b, "%T", t)
	}
}

func writeMembers(b *strings.Builder, name string, members []btf.Member) {
	fmt.Fprintf(b, "%s{", name)
	for _, m := range members {
		fmt.Fprintf(b, "%s@%d ", m.Name, m.Offset)
		writeLayout(b, m.Type)
		b.WriteByte(';')
	}
	b.WriteByte('}')
}
