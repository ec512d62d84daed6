// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
)

// swatch is how a bar, a line or a mark looks.
type swatch struct {
	// kind is bar, range, diamond, cross or line.
	kind  string
	color string
	// shape is the shape of a line's marks, empty for no marks. dash is its dashes. Both help people who cannot distinguish colors.
	shape string
	dash  string
}

// invalidFill is the fill of bars of invalid rows.
const invalidFill = "url(#hatch)"

// invalidColor is the color of marks and lines of invalid rows.
const invalidColor = "#888888"

var shapes = []string{"circle", "square", "triangle", "diamond"}

var dashes = []string{"", "7 3", "2 3", "9 3 2 3"}

// draw draws the swatch in a legend, 24 pixels wide from x on, centered at y.
func (w swatch) draw(s *svg, x, y float64) {
	switch w.kind {
	case "bar":
		s.rect(x, y-6, 24, 12, w.color, "", "")
	case "range":
		whisker(s, x+2, x+22, y, "")
	case "diamond", "cross":
		mark(s, x+12, y, 5, w.kind, w.color, "", "")
	default:
		s.path([][2]float64{{x, y}, {x + 24, y}}, w, "")
		if w.shape != "" {
			mark(s, x+12, y, 4, w.shape, w.color, "", "")
		}
	}
}

// path draws a line through points.
func (s *svg) path(points [][2]float64, w swatch, class string) {
	var coordinates []string
	for _, p := range points {
		coordinates = append(coordinates, px(p[0])+","+px(p[1]))
	}
	a := attrs{"points", strings.Join(coordinates, " "), "fill", "none", "stroke", w.color, "stroke-width", "2"}
	if w.dash != "" {
		a = append(a, "stroke-dasharray", w.dash)
	}
	if class != "" {
		a = append(attrs{"class", class}, a...)
	}
	s.element("polyline", a, "", "")
}

// mark draws a mark of a shape at a point.
func mark(s *svg, x, y, r float64, shape, color, class, title string) {
	a := attrs{"fill", color, "stroke", "#ffffff", "stroke-width", "1"}
	if shape == "cross" {
		a = attrs{"fill", "none", "stroke", color, "stroke-width", "3"}
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

// whisker draws a horizontal error mark.
func whisker(s *svg, left, right, y float64, class string) {
	s.line(left, y, right, y, ink, 1.5, class)
	s.line(left, y-4, left, y+4, ink, 1.5, "")
	s.line(right, y-4, right, y+4, ink, 1.5, "")
}

// upright draws a vertical error mark.
func upright(s *svg, x, bottom, top float64, color, class string) {
	s.line(x, bottom, x, top, color, 1.5, class)
	s.line(x-4, bottom, x+4, bottom, color, 1.5, "")
	s.line(x-4, top, x+4, top, color, 1.5, "")
}
