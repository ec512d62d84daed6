// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// ReplaceFunction returns the instructions of a program with another body for one of its functions. The function keeps its BTF:
// its type and its first line.
func ReplaceFunction(insns asm.Instructions, name string, body asm.Instructions) (asm.Instructions, error) {
	if len(body) == 0 || body[0].Symbol() != "" {
		return nil, fmt.Errorf("replace the function %s: its new body is empty or starts with a label", name)
	}
	start := -1
	for i := range insns {
		if insns[i].Symbol() == name {
			start = i
			break
		}
	}
	if start < 0 {
		return nil, fmt.Errorf("replace the function %s: the program has none of that name", name)
	}
	end := start + 1
	for end < len(insns) && btf.FuncMetadata(&insns[end]) == nil {
		end++
	}
	first := btf.WithFuncMetadata(body[0], btf.FuncMetadata(&insns[start]))
	first = first.WithSource(insns[start].Source()).WithSymbol(name)
	out := make(asm.Instructions, 0, len(insns)+len(body))
	out = append(out, insns[:start]...)
	out = append(out, first)
	out = append(out, body[1:]...)
	return append(out, insns[end:]...), nil
}

// CalledFunctions returns ins without the functions that nothing calls. The verifier would walk through them, or reject them.
// The first function of ins is the program itself.
func CalledFunctions(ins asm.Instructions) asm.Instructions {
	var order []string
	functions := make(map[string]asm.Instructions)
	for _, i := range ins {
		if btf.FuncMetadata(&i) != nil {
			order = append(order, i.Symbol())
		}
		current := order[len(order)-1]
		functions[current] = append(functions[current], i)
	}
	called := map[string]bool{order[0]: true}
	for open := []string{order[0]}; len(open) > 0; {
		f := open[len(open)-1]
		open = open[:len(open)-1]
		for _, i := range functions[f] {
			// A call, or the address of a callback.
			if to := i.Reference(); i.IsFunctionReference() && !called[to] {
				called[to] = true
				open = append(open, to)
			}
		}
	}
	var out asm.Instructions
	for _, f := range order {
		if called[f] {
			out = append(out, functions[f]...)
		}
	}
	return out
}
