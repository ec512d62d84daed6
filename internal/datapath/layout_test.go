// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"culvert/internal/bpfobj"
)

// TestLayouts: the layout of a map follows the types of its keys and values.
func TestLayouts(t *testing.T) {
	spec, err := bpfobj.LoadPipeline()
	if err != nil {
		t.Fatal(err)
	}
	a := MapLayouts(spec)
	if len(a) == 0 || a[bpfobj.PipelineMapPorts] == a[bpfobj.PipelineMapLimits] {
		t.Errorf("layouts %v", a)
	}
	ports := spec.Maps[bpfobj.PipelineMapPorts]
	limits := spec.Maps[bpfobj.PipelineMapLimits]
	ports.Value, limits.Value = limits.Value, ports.Value
	b := MapLayouts(spec)
	if a[bpfobj.PipelineMapPorts] == b[bpfobj.PipelineMapPorts] || a[bpfobj.PipelineMapCounters] != b[bpfobj.PipelineMapCounters] {
		t.Error("a layout does not follow the types")
	}
}
