// SPDX-License-Identifier: Apache-2.0

//go:build !example

package stages

import (
	"strings"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/reason"
)

// The product has nothing of the stage that only the tests of internal/example have.
func TestNoExample(t *testing.T) {
	const name = "example"
	for _, s := range All() {
		if s.Name() == name {
			t.Error("it is among the stages")
		}
	}
	for _, s := range reason.Stages() {
		if s.Name == name {
			t.Error("its reasons are known")
		}
	}
	spec, err := bpfobj.LoadPipeline()
	if err != nil {
		t.Fatal(err)
	}
	for symbol := range spec.Variables {
		if strings.HasPrefix(symbol, name) {
			t.Errorf("the pipeline has the variable %s", symbol)
		}
	}
	for symbol := range spec.Maps {
		if strings.HasPrefix(symbol, name) {
			t.Errorf("the pipeline has the map %s", symbol)
		}
	}
	for symbol := range bpfobj.EnumNames(bpfobj.LoadPipeline, "reason") {
		if strings.Contains(symbol, strings.ToUpper(name)) {
			t.Errorf("the pipeline has the reason %s", symbol)
		}
	}
}
