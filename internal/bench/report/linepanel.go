// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// curve is a line of a diagram.
type curve struct {
	name   string
	points []spot
	swatch
	// marks is set to draw a mark at each point.
	marks bool
}

// spot is a point of a curve, with its spread if y.Min and y.Max differ.
type spot struct {
	x float64
	y Spread
	// text describes the point. A browser shows it under the pointer.
	text string
	// alone is set if the line does not go through the point.
	alone bool
	// invalid is set for points of invalid rows.
	invalid bool
}

// linePanel draws curves over a common x axis.
type linePanel struct {
	heading, xUnit, yUnit string
	x, y                  axis
	xTicks, yTicks        []tick
	curves                []curve
	tall                  float64
}

func (p linePanel) height() float64 { return p.tall }

func (p linePanel) draw(s *svg, x, y, width float64) {
	labels := 0.0
	for _, t := range p.yTicks {
		labels = max(labels, tickStyle.width(t.label))
	}
	left, right := x+labels+28, x+width-14
	top, bottom := y+8, y+p.tall-46
	if p.heading != "" {
		s.text(x, y+14, "start", headingStyle, p.heading)
		top = y + 28
	}
	xs, ys := p.x.on(left, right), p.y.on(bottom, top)
	for _, t := range p.yTicks {
		s.line(left, ys.at(t.value), right, ys.at(t.value), grid, 1, "grid")
		s.text(left-6, ys.at(t.value)+4, "end", tickStyle, t.label)
	}
	for _, t := range p.xTicks {
		s.line(xs.at(t.value), top, xs.at(t.value), bottom+4, grid, 1, "grid")
		s.text(xs.at(t.value), bottom+17, "middle", tickStyle, t.label)
	}
	s.text((left+right)/2, bottom+36, "middle", tickStyle, p.xUnit)
	turned := tickStyle
	turned.turned = true
	s.text(x+11, (top+bottom)/2, "middle", turned, p.yUnit)
	s.line(left, bottom, right, bottom, faint, 1, "")
	s.line(left, top, left, bottom, faint, 1, "")
	for _, c := range p.curves {
		c.draw(s, xs, ys)
	}
}

func (c curve) draw(s *svg, xs, ys axis) {
	var line [][2]float64
	for _, p := range c.points {
		if p.y.Min != p.y.Max {
			upright(s, xs.at(p.x), ys.at(p.y.Min), ys.at(p.y.Max), c.color, "error")
		}
		if !p.alone {
			line = append(line, [2]float64{xs.at(p.x), ys.at(p.y.Median)})
		}
	}
	if len(line) > 1 {
		s.path(line, c.swatch, "curve")
	}
	if !c.marks {
		return
	}
	for _, p := range c.points {
		shape, color, class, text := c.shape, c.color, "mark", fmt.Sprintf("%s, %s", c.name, p.text)
		if p.invalid {
			shape, color, class, text = "cross", invalidColor, "mark invalid", text+" (invalid)"
		}
		mark(s, xs.at(p.x), ys.at(p.y.Median), 4.5, shape, color, class, text)
	}
}
