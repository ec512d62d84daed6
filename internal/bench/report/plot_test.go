// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shape is an element of a picture.
type shape struct {
	name string
	attr map[string]string
	text string
}

func (s shape) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s.attr[name], 64)
	if err != nil {
		t.Errorf("%s of %+v is no number", name, s)
	}
	return v
}

// elements lists the elements of a picture, which must be well-formed.
func elements(t *testing.T, picture []byte) []shape {
	t.Helper()
	var all []shape
	d := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
		switch e := token.(type) {
		case xml.StartElement:
			s := shape{name: e.Name.Local, attr: map[string]string{}}
			for _, a := range e.Attr {
				s.attr[a.Name.Local] = a.Value
			}
			all = append(all, s)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += strings.TrimSpace(string(e))
			}
		}
	}
}

// class lists the elements of a class.
func class(all []shape, name string) []shape {
	return slices.DeleteFunc(slices.Clone(all), func(s shape) bool { return s.attr["class"] != name })
}

// plot draws the one picture of a kind.
func plot(t *testing.T, r *Report, kind string) []shape {
	t.Helper()
	for _, p := range r.Plots() {
		if p.Kind == kind {
			return elements(t, p.SVG)
		}
	}
	t.Fatalf("no plot %s of %s", kind, r.Scenario)
	return nil
}

func samples() []*Report {
	return []*Report{vethSample(), costSample(), instructionSample(), workersSample(), ndrSample(), latencySample(), floodSample()}
}

func TestKindsOfPlots(t *testing.T) {
	for _, tc := range []struct {
		report *Report
		want   string
	}{
		{vethSample(), "rates"},
		{costSample(), "cost"},
		{instructionSample(), "instructions"},
		{workersSample(), "rates scaling"},
		{ndrSample(), "ndr"},
		{latencySample(), "latency"},
		{floodSample(), "floods"},
	} {
		var kinds []string
		for _, p := range tc.report.Plots() {
			kinds = append(kinds, p.Kind)
		}
		if got := strings.Join(kinds, " "); got != tc.want {
			t.Errorf("%s has plots %s, want %s", tc.report.Scenario, got, tc.want)
		}
	}
}

// Nothing in a plot depends on the order of maps.
func TestPlotsAreTheSameEachTime(t *testing.T) {
	for i, r := range samples() {
		first := r.Plots()
		for range 20 {
			for n, p := range samples()[i].Plots() {
				if !bytes.Equal(p.SVG, first[n].SVG) {
					t.Fatalf("plot %s of %s differs from the one before", p.Kind, r.Scenario)
				}
			}
		}
	}
}

// Every text is inside the picture, every picture has its background, its title and the machine, and no figure is
// lost on the way.
func TestPlotsAreWhole(t *testing.T) {
	wide := vethSample()
	wide.Machine.CPU = strings.Repeat("a long name of a processor ", 12)
	for _, r := range append(samples(), wide) {
		for _, p := range r.Plots() {
			if bytes.Contains(p.SVG, []byte("NaN")) || bytes.Contains(p.SVG, []byte("Inf")) {
				t.Errorf("%s %s has a figure that is none", r.Scenario, p.Kind)
			}
			all := elements(t, p.SVG)
			width, height := all[0].number(t, "width"), all[0].number(t, "height")
			background := slices.ContainsFunc(all, func(s shape) bool {
				return s.name == "rect" && s.attr["fill"] == "#ffffff" && s.number(t, "width") == width &&
					s.number(t, "height") == height
			})
			if !background {
				t.Errorf("%s %s has no background", r.Scenario, p.Kind)
			}
			words := ""
			for _, s := range all {
				if s.name != "text" {
					continue
				}
				words += s.text + "\n"
				need := textStyle{size: s.number(t, "font-size")}.width(s.text)
				left, y := s.number(t, "x"), s.number(t, "y")
				switch s.attr["text-anchor"] {
				case "middle":
					left -= need / 2
				case "end":
					left -= need
				}
				if strings.HasPrefix(s.attr["transform"], "rotate") {
					left, need = s.number(t, "x"), 0
				}
				if left < 0 || left+need > width || y < 0 || y > height {
					t.Errorf("%s %s: %q from %.0f to %.0f at %.0f is cut off: the picture is %.0f by %.0f", r.Scenario, p.Kind,
						s.text, left, left+need, y, width, height)
				}
			}
			for _, want := range []string{"scenario " + r.Scenario, "Linux 6.12.0"} {
				if !strings.Contains(words, want) {
					t.Errorf("%s %s does not say %q", r.Scenario, p.Kind, want)
				}
			}
		}
	}
}

// Bars begin at zero, and they and their error marks are as long as the figures say.
func TestBars(t *testing.T) {
	r := vethSample()
	all := plot(t, r, "rates")
	bars, invalid, errorMarks := class(all, "bar"), class(all, "bar invalid"), class(all, "error")
	if len(bars) != 15 || len(invalid) != 1 || len(errorMarks) != 16 {
		t.Fatalf("%d bars, %d invalid ones, %d error marks: want 15, 1, 16", len(bars), len(invalid), len(errorMarks))
	}
	if invalid[0].attr["fill"] != invalidFill {
		t.Errorf("the invalid bar is filled with %s", invalid[0].attr["fill"])
	}
	// The scale follows from the first bar. All others have the same.
	perMpps := bars[0].number(t, "width") / r.Rows[0].Mpps.Median
	zero := bars[0].number(t, "x")
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.2 {
			t.Errorf("%s at %.1f, want %.1f", what, got, want)
		}
	}
	for i, row := range r.Rows[:7] {
		near(row.Name+": bar's begin", bars[i].number(t, "x"), zero)
		near(row.Name+": bar's length", bars[i].number(t, "width"), row.Mpps.Median*perMpps)
		near(row.Name+": min", errorMarks[i].number(t, "x1"), zero+row.Mpps.Min*perMpps)
		near(row.Name+": max", errorMarks[i].number(t, "x2"), zero+row.Mpps.Max*perMpps)
		want := cold[0]
		if strings.HasPrefix(row.Name, "culvert") {
			want = warm[0]
		}
		if got := bars[i].attr["fill"]; got != want {
			t.Errorf("%s has color %s, want %s", row.Name, got, want)
		}
	}
	texts := ""
	for _, s := range all {
		if s.name == "text" {
			texts += "\n" + s.text
		}
	}
	for _, want := range []string{"3.883", "0.122", "redirect", "culvert+reference", "1.200 (invalid)", "138-byte frames", "512-byte frames"} {
		if !strings.Contains(texts+"\n", "\n"+want+"\n") {
			t.Errorf("no label %q in%s", want, texts)
		}
	}
}

// A cost below zero, which noise can cause, is drawn to the left of zero.
func TestBarsBelowZero(t *testing.T) {
	r := costSample()
	all := plot(t, r, "cost")
	zero := class(all, "zero")[0].number(t, "x1")
	if left := class(all, "error")[0].number(t, "x1"); left >= zero {
		t.Errorf("-22 ns is drawn at %.1f, zero at %.1f", left, zero)
	}
	if got := len(class(all, "best")); got != 3 {
		t.Errorf("%d marks of the best, want 3", got)
	}
}

func TestCurves(t *testing.T) {
	for _, tc := range []struct {
		report                             *Report
		kind                               string
		curves, marks, crosses, errorMarks int
	}{
		// Four rows over seven lengths and a mix.
		{ndrSample(), "ndr", 4, 31, 1, 32},
		// Two kinds over three numbers of workers, in two panels; CPU use has no error marks.
		{workersSample(), "scaling", 4, 12, 0, 6},
		// Six rows at three loads, half of them with a fine curve without marks.
		{latencySample(), "latency", 18, 36, 0, 0},
		// Three rows at four rates.
		{floodSample(), "floods", 3, 8, 4, 12},
	} {
		all := plot(t, tc.report, tc.kind)
		for class, want := range map[string]int{
			"curve": tc.curves, "mark": tc.marks, "mark invalid": tc.crosses, "error": tc.errorMarks,
		} {
			got := len(slices.DeleteFunc(slices.Clone(all), func(s shape) bool { return s.attr["class"] != class }))
			if got != want {
				t.Errorf("%s: %d elements of class %s, want %d", tc.kind, got, class, want)
			}
		}
	}
}

// No line joins the mix of lengths to the others, as if it were a longer frame.
func TestMixStandsApart(t *testing.T) {
	for _, c := range class(plot(t, ndrSample(), "ndr"), "curve") {
		if points := strings.Fields(c.attr["points"]); len(points) != 7 {
			t.Errorf("a curve has %d points, want those of 7 lengths", len(points))
		}
	}
}

func TestAxes(t *testing.T) {
	labels := func(ticks []tick) string {
		var all []string
		for _, t := range ticks {
			all = append(all, t.label)
		}
		return strings.Join(all, " ")
	}
	for _, tc := range []struct {
		values []float64
		want   string
	}{
		{[]float64{5.985}, "0 1 2 3 4 5 6"},
		{[]float64{0.122, 0.05}, "0.00 0.02 0.04 0.06 0.08 0.10 0.12 0.14"},
		{[]float64{-22, 488}, "-100 0 100 200 300 400 500"},
		{[]float64{0}, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{nil, "0.0 0.2 0.4 0.6 0.8 1.0"},
	} {
		a, ticks := linearAxis(tc.values)
		if got := labels(ticks); got != tc.want {
			t.Errorf("%v: marks %s, want %s", tc.values, got, tc.want)
		}
		for _, v := range tc.values {
			if v < a.lo || v > a.hi {
				t.Errorf("%v is not between %v and %v", v, a.lo, a.hi)
			}
		}
	}
	if _, ticks := logAxis([]float64{3.3, 1140}); labels(ticks) != "2 5 10 20 50 100 200 500 1000 2000" {
		t.Errorf("marks %s", labels(ticks))
	}
	if _, ticks := logAxis([]float64{0, 3, 40000}); labels(ticks) != "1 10 100 1000 10000 100000" {
		t.Errorf("marks %s", labels(ticks))
	}
	// The distances from 90 to 99 % and from 99 to 99.9 % are the same.
	a, _ := shareAxis(0.9999)
	a = a.on(0, 100)
	first, second := a.at(tail(0.99))-a.at(tail(0.9)), a.at(tail(0.999))-a.at(tail(0.99))
	if math.Abs(first-second) > 1e-6 || first <= 0 {
		t.Errorf("from 90 to 99 %% it is %v, from there to 99.9 %% %v", first, second)
	}
}

// Extreme values, which a report written by hand may have, are drawn or left out. The picture is always valid.
func TestPlotsOfExtremeReports(t *testing.T) {
	huge := &Spread{1e300, 1e299, 1e301}
	zero := &Spread{}
	for name, row := range map[string]Row{
		"huge":                      {Mpps: huge, NDR: huge, Workers: ptr(0)},
		"zero":                      {Mpps: zero, NDR: zero, NsPerPacket: zero, Workers: ptr(65536), Latency: []Latency{{}}},
		"tiny":                      {Mpps: &Spread{1e-300, 0, 1e-299}},
		"<&\">\x01":                 {NsPerPacket: &Spread{-5, -5, -5}, Instructions: ptr(0.0)},
		strings.Repeat("long", 100): {Mpps: &Spread{1, 1, 1}},
		"curve":                     {Latency: []Latency{{Curve: []Point{{1, 5}, {-1, 5}, {0.9, -1}, {0.6, 1e12}}}}},
	} {
		row.Name = name
		r := &Report{Scenario: "odd", Rows: []Row{row}}
		plots := r.Plots()
		if len(plots) == 0 {
			t.Errorf("no plot of %s", name)
		}
		for _, p := range plots {
			elements(t, p.SVG)
			if len(p.SVG) > 100_000 {
				t.Errorf("plot %s of %s has %d bytes", p.Kind, name, len(p.SVG))
			}
		}
	}
}

func TestPlotsNameRowsNotMeasured(t *testing.T) {
	r := Report{Scenario: "veth", Rows: []Row{
		{Name: "redirect", Mpps: &Spread{Median: 2, Min: 1, Max: 3}, Valid: true},
		{Name: "reference", Note: "not measured: no such file"},
		{Name: "reference@512", Note: "not measured: no such file"},
	}}
	for _, p := range r.Plots() {
		if !strings.Contains(string(p.SVG), "not measured: reference<") {
			t.Errorf("plot %s does not say that reference is missing", p.Kind)
		}
	}
	r.Rows = r.Rows[:1]
	if svg := string(r.Plots()[0].SVG); strings.Contains(svg, "not measured") {
		t.Error("all rows are there, and the plot says that some are missing")
	}
}
