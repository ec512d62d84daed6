// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"testing"

	"culvert/internal/scion/scionplane"
)

// TestWithoutPlane has processes of SCION routers, two of one ID in different network namespaces. One that has a data plane is not among
// those without, also if the report has only the data plane of this namespace.
func TestWithoutPlane(t *testing.T) {
	const here, there = 1, 2
	process := func(router string, netns uint32) scionplane.Process {
		return scionplane.Process{PID: int(netns), Router: router, NetNS: netns}
	}
	slow := func(router string, netns uint32) SlowPath {
		return SlowPath{PID: int(netns), Router: router, NetNS: netns, Here: netns == here}
	}
	both := []scionplane.Process{process("br1", here), process("br1", there)}
	for _, c := range []struct {
		name   string
		planes []plane
		all    []scionplane.Process
		router string
		want   []SlowPath
	}{
		{"both have one", []plane{{"br1", here}, {"br1", there}}, both, "br1", nil},
		{"both have one, of all", []plane{{"br1", here}, {"br1", there}}, both, "", nil},
		{"that of another namespace has none", []plane{{"br1", here}}, both, "br1", nil},
		{"that of another namespace has none, of all", []plane{{"br1", here}}, both, "", []SlowPath{slow("br1", there)}},
		{"that of this namespace has none", []plane{{"br1", there}}, both, "br1", []SlowPath{slow("br1", here)}},
		{"neither has one", nil, both, "br1", []SlowPath{slow("br1", here)}},
		{"only another namespace has it", nil, both[1:], "br1", []SlowPath{slow("br1", there)}},
		{"a data plane of the name here", []plane{{"br1", here}}, both[1:], "br1", nil},
		{"another ID", nil, both, "br2", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Report{planes: c.planes}
			if got := r.withoutPlane(c.all, c.router, here); !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
