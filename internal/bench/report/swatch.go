// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// swatch is how a bar, a line or a mark looks.
type swatch struct {
	// kind is bar, range, diamond, cross or line.
	kind   string
	colour string
	// shape of a line's marks, and its dashes: those who cannot tell colours apart have these.
	shape string
	dash  string
}

// invalidFill fills bars whose figures are not to be trusted.
const invalidFill = "url(#hatch)"

// invalidColour is that of marks and lines that are not to be trusted.
const invalidColour = "#888888"

var shapes = []string{"circle", "square", "triangle", "diamond"}

var dashes = []string{"", "7 3", "2 3", "9 3 2 3"}

// draw draws the swatch of a legend, 24 pixels wide around y.
func (w swatch) draw(s *svg, x, y float64) {
	switch w.kind {
	case "bar":
		s.rect(x, y-6, 24, 12, w.colour, "", "")
	case "range":
		whisker(s, x+2, x+22, y, "")
	case "diamond", "cross":
		mark(s, x+12, y, 5, w.kind, w.colour, "", "")
	default:
		s.path([][2]float64{{x, y}, {x + 24, y}}, w, "")
		mark(s, x+12, y, 4, w.shape, w.colour, "", "")
	}
}

// path draws a line through points.
func (s *svg) path(points [][2]float64, w swatch, class string) {
	var coordinates []string
	for _, p := range points {
		coordinates = append(coordinates, px(p[0])+","+px(p[1]))
	}
	a := attrs{"points", strings.Join(coordinates, " "), "fill", "none", "stroke", w.colour, "stroke-width", "2"}
	if w.dash != "" {
		a = append(a, "stroke-dasharray", w.dash)
	}
	if class != "" {
		a = append(attrs{"class", class}, a...)
	}
	s.element("polyline", a, "", "")
}

// mark draws a point.
func mark(s *svg, x, y, r float64, shape, colour, class, title string) {
	a := attrs{"fill", colour, "stroke", "#ffffff", "stroke-width", "1"}
	if shape == "cross" {
		a = attrs{"fill", "none", "stroke", colour, "stroke-width", "3"}
	}
	if class != "" {
		a = append(attrs{"class", class}, a...)
	}
	corners := func(offsets ...[2]float64) string {
		var all []string
		for _, o := range offsets {
			all = append(all, px(x+r*o[0])+","+px(y+r*o[1]))
		}
		return strings.Join(all, " ")
	}
	switch shape {
	case "square":
		s.element("rect", append(a, "x", px(x-r), "y", px(y-r), "width", px(2*r), "height", px(2*r)), "", title)
	case "triangle":
		points := corners([2]float64{0, -1.2}, [2]float64{1.2, 1}, [2]float64{-1.2, 1})
		s.element("polygon", append(a, "points", points), "", title)
	case "diamond":
		points := corners([2]float64{0, -1.3}, [2]float64{1.3, 0}, [2]float64{0, 1.3}, [2]float64{-1.3, 0})
		s.element("polygon", append(a, "points", points), "", title)
	case "cross":
		d := fmt.Sprintf("M%s %sL%s %sM%[1]s %[4]sL%[3]s %[2]s", px(x-r), px(y-r), px(x+r), px(y+r))
		s.element("path", append(a, "d", d), "", title)
	default:
		s.element("circle", append(a, "cx", px(x), "cy", px(y), "r", px(r)), "", title)
	}
}

// whisker draws an error mark from left to right.
func whisker(s *svg, left, right, y float64, class string) {
	s.line(left, y, right, y, ink, 1.5, class)
	s.line(left, y-4, left, y+4, ink, 1.5, "")
	s.line(right, y-4, right, y+4, ink, 1.5, "")
}

// upright draws an error mark from bottom to top.
func upright(s *svg, x, bottom, top float64, colour, class string) {
	s.line(x, bottom, x, top, colour, 1.5, class)
	s.line(x-4, bottom, x+4, bottom, colour, 1.5, "")
	s.line(x-4, top, x+4, top, colour, 1.5, "")
}
