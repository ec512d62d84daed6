// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/load"
)

func TestGroups(t *testing.T) {
	tests := []struct {
		sizes []string
		cpus  []int
		want  []string
	}{
		{nil, nil, []string{"", "@64", "@min", "@512", "@1400", "@2cpu"}},
		{nil, []int{2}, []string{"@2cpu"}},
		{nil, []int{1}, []string{"", "@64", "@min", "@512", "@1400"}},
		{[]string{"512", "138"}, nil, []string{"", "@512", "@2cpu"}},
		{[]string{"256"}, nil, []string{"@256"}},
		{[]string{"512", "min"}, []int{2, 1}, []string{"@512@2cpu", "@min@2cpu", "@512", "@min"}},
		{[]string{"512", "512"}, []int{1}, []string{"@512"}},
	}
	for _, tc := range tests {
		groups, err := Options{Sizes: tc.sizes, CPUs: tc.cpus}.groups()
		var got []string
		for _, g := range groups {
			got = append(got, g.suffix())
		}
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("sizes %q on %v CPUs: %q, want %q; error %v", tc.sizes, tc.cpus, got, tc.want, err)
		}
	}
	for _, bad := range []Options{
		{Sizes: []string{"41"}}, {Sizes: []string{"1515"}}, {Sizes: []string{"imix"}}, {CPUs: []int{3}}, {CPUs: []int{0}},
	} {
		if _, err := bad.groups(); !errors.Is(err, load.ErrUnknown) {
			t.Errorf("sizes %q on %v CPUs: error %v", bad.Sizes, bad.CPUs, err)
		}
	}
}

// SCION rows are left out if frames are too short for them. It is an error if no other rows were named.
func TestShareOfShortFrames(t *testing.T) {
	names := func(o Options) ([]string, error) {
		chosen, err := Veth().Choose(o.Rows)
		if err != nil {
			t.Fatal(err)
		}
		groups, err := o.groups()
		if err != nil {
			t.Fatal(err)
		}
		err = o.share(groups, chosen)
		var got []string
		for _, c := range groups[0].rows {
			got = append(got, c.Name)
		}
		return got, err
	}
	if got, err := names(Options{Sizes: []string{"64"}}); err != nil || !slices.Equal(got, []string{"direct", "bridge", "redirect"}) {
		t.Errorf("rows %q, error %v", got, err)
	}
	if _, err := names(Options{Sizes: []string{"64"}, Rows: []string{"culvert-cold"}}); !errors.Is(err, ErrOption) ||
		!strings.Contains(err.Error(), "at least 134 bytes (--size min)") {
		t.Errorf("error %v", err)
	}
	if got, err := names(Options{Sizes: []string{"512"}, Rows: []string{"reference-1cpu"}}); err != nil || len(got) != 1 {
		t.Errorf("rows %q, error %v", got, err)
	}
}

func TestTooFewCPUs(t *testing.T) {
	var progress bytes.Buffer
	o := Options{Progress: &progress}
	all, err := o.groups()
	if err != nil {
		t.Fatal(err)
	}
	available, err := o.enoughCPUs(all, 1)
	if err != nil || len(available) != len(all)-1 || !strings.Contains(progress.String(), "@2cpu need 2 CPUs") {
		t.Errorf("%d groups of %d, progress %q, error %v", len(available), len(all), &progress, err)
	}
	o.CPUs = []int{2}
	if _, err := o.enoughCPUs(all, 1); err == nil || !strings.Contains(err.Error(), "need 2 CPUs") {
		t.Errorf("error %v", err)
	}
	if available, err := o.enoughCPUs(all, 2); err != nil || len(available) != len(all) {
		t.Errorf("%d groups of %d, error %v", len(available), len(all), err)
	}
}
