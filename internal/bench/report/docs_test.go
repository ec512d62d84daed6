// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// jsonFields lists the JSON names of all fields of a type, including those of nested types.
func jsonFields(t reflect.Type, seen map[reflect.Type]bool) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return jsonFields(t.Elem(), seen)
	case reflect.Struct:
	default:
		return nil
	}
	if seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(append(names, name), jsonFields(t.Field(i).Type, seen)...)
	}
	return names
}

// The tables of docs/benchmarks.md name exactly the fields of the JSON.
func TestDocsNameAllFields(t *testing.T) {
	page, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n### JSON\n")
	text, _, ended := strings.Cut(text, "\n### Plots\n")
	if !found || !ended {
		t.Fatal("docs/benchmarks.md has no section JSON before a section Plots")
	}
	var documented []string
	quoted := regexp.MustCompile("`([a-z0-9_]+)`")
	for line := range strings.Lines(text) {
		cell, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			continue
		}
		cell, meaning, _ := strings.Cut(cell, "|")
		// The two fields of a point are explained where the curve is.
		if strings.Contains(cell, "curve") {
			cell += meaning
		}
		for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(documented)
	want := jsonFields(reflect.TypeFor[Report](), map[reflect.Type]bool{})
	slices.Sort(want)
	// Names that several objects have stand in several tables.
	if !slices.Equal(documented, want) {
		t.Errorf("documented\n%q\nbut the types have\n%q", documented, want)
	}
}

// The page names every kind of plot.
func TestDocsNameAllPlots(t *testing.T) {
	page, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range PlotKinds() {
		if !strings.Contains(string(page), "\n| `"+kind+"` | ") {
			t.Errorf("docs/benchmarks.md does not say what plot %s shows", kind)
		}
	}
}
