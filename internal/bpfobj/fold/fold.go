// SPDX-License-Identifier: Apache-2.0

// Package fold puts what is fixed when programs are loaded into their instructions.
//
// A switch or a size that a program reads is a constant of a read-only section (.rodata), which user space writes before it loads the
// program. The kernel's verifier takes out the branches that such a constant decides, but leaves the two instructions that fetch it, and
// whatever the compiler has prepared for branches that are gone. Constants takes them out too. What a program does is the same, so all
// tests run on folded programs. The build tag nofold leaves programs as they are.
package fold

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Load loads a collection with its constants folded into its programs. What refers to no map any more is still bound to it: the maps of a
// program are found by the program.
func Load(spec *ebpf.CollectionSpec, o ebpf.CollectionOptions) (*ebpf.Collection, error) {
	gone, err := Constants(spec)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, o)
	if err != nil {
		return nil, err
	}
	for program, maps := range gone {
		for _, name := range maps {
			if err := coll.Programs[program].BindMap(coll.Maps[name]); err != nil {
				coll.Close()
				return nil, fmt.Errorf("binding map %s to program %s: %w", name, program, err)
			}
		}
	}
	return coll, nil
}

// Constants folds the constants of a collection into its programs. It has to be called after the last change of variables, and before the
// collection is loaded. It returns the maps that a program refers to no more, by the program's name.
func Constants(spec *ebpf.CollectionSpec) (gone map[string][]string, err error) {
	if !enabled {
		return nil, nil
	}
	sections, err := sectionsOf(spec)
	if err != nil {
		return nil, err
	}
	gone = make(map[string][]string)
	for name, p := range spec.Programs {
		code, err := decode(p.Instructions)
		if err != nil {
			return nil, fmt.Errorf("folding constants into program %s: %w", name, err)
		}
		before := code.maps()
		for code.fold(sections) {
		}
		if p.Instructions, err = code.encode(); err != nil {
			return nil, fmt.Errorf("folding constants into program %s: %w", name, err)
		}
		after := code.maps()
		gone[name] = slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(m string) bool { return after[m] || spec.Maps[m] == nil })
	}
	return gone, nil
}

// sectionsOf returns the contents of the sections that neither programs nor user space can write once they are loaded.
func sectionsOf(spec *ebpf.CollectionSpec) (map[string][]byte, error) {
	sections := make(map[string][]byte)
	for name, m := range spec.Maps {
		if !strings.HasPrefix(name, ".rodata") || m.Flags&unix.BPF_F_RDONLY_PROG == 0 || len(m.Contents) != 1 {
			continue
		}
		data, ok := m.Contents[0].Value.([]byte)
		if !ok {
			return nil, fmt.Errorf("section %s holds %T", name, m.Contents[0].Value)
		}
		sections[name] = slices.Clone(data)
	}
	for name, v := range spec.Variables {
		if data := sections[v.SectionName]; data != nil {
			if int(v.Offset)+len(v.Value) > len(data) {
				return nil, fmt.Errorf("variable %s is beyond its section %s", name, v.SectionName)
			}
			copy(data[v.Offset:], v.Value)
		}
	}
	return sections, nil
}
