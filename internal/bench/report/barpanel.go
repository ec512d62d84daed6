// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// bar is a figure with its spread.
type bar struct {
	name   string
	value  Spread
	format string
	// best, if set, is marked beside the bar's end.
	best  *float64
	color string
	valid bool
}

// barPanel draws horizontal bars, one for each row, with names on the left and medians at their ends. An error mark reaches from
// the smallest to the largest value.
type barPanel struct {
	heading, unit string
	bars          []bar
	// names is the width of names in pixels. fit has the bars of all panels, whose labels must fit. names, fit, axis and ticks are
	// the same for all panels, so that all have the same scale.
	names float64
	fit   []bar
	axis  axis
	ticks []tick
}

const (
	barPitch = 24.0
	barWidth = 15.0
)

func (p barPanel) height() float64 {
	return p.top() + barPitch*float64(len(p.bars)) + 44
}

func (p barPanel) top() float64 {
	if p.heading == "" {
		return 4
	}
	return 26
}

// label is the figure at the bar's end.
func (b bar) label() string {
	figure := fmt.Sprintf(b.format, b.value.Median)
	if !b.valid {
		figure += " (invalid)"
	}
	return figure
}

// end is the largest value that is drawn for the bar.
func (b bar) end() float64 {
	end := max(b.value.Median, b.value.Max, 0)
	if b.best != nil {
		end = max(end, *b.best)
	}
	return end
}

// axisLength is the longest length of the axis, in pixels, at which the labels after the ends of all bars fit into room.
func (p barPanel) axisLength(room float64) float64 {
	length := room - 12
	full := p.axis.on(0, 1)
	for _, b := range p.fit {
		if share := full.at(b.end()); share > 0 {
			length = min(length, (room-14-labelStyle.width(b.label()))/share)
		}
	}
	return max(length, 20)
}

func (p barPanel) draw(s *svg, x, y, width float64) {
	left := x + min(p.names, width/2) + 10
	a := p.axis.on(left, left+p.axisLength(x+width-left))
	if p.heading != "" {
		s.text(x, y+14, "start", headingStyle, p.heading)
	}
	y += p.top()
	bottom := y + barPitch*float64(len(p.bars))
	for _, t := range p.ticks {
		s.line(a.at(t.value), y, a.at(t.value), bottom+4, grid, 1, "grid")
		s.text(a.at(t.value), bottom+16, "middle", tickStyle, t.label)
	}
	s.text((a.from+a.to)/2, bottom+34, "middle", tickStyle, p.unit)
	for i, b := range p.bars {
		mid := y + barPitch*(float64(i)+0.5)
		title := fmt.Sprintf("%s: %s %s (%s to %s)", b.name, b.label(), p.unit, fmt.Sprintf(b.format, b.value.Min),
			fmt.Sprintf(b.format, b.value.Max))
		fill, class := b.color, "bar"
		if !b.valid {
			fill, class = invalidFill, "bar invalid"
		}
		zero, end := a.at(0), a.at(b.value.Median)
		s.rect(min(zero, end), mid-barWidth/2, max(end-zero, zero-end), barWidth, fill, class, title)
		if b.value.Min != b.value.Max {
			whisker(s, a.at(b.value.Min), a.at(b.value.Max), mid, "error")
		}
		if b.best != nil {
			mark(s, a.at(*b.best), mid, 5, "diamond", bestColor, "best", fmt.Sprintf("best: "+b.format, *b.best))
		}
		s.text(a.from-8, mid+4, "end", labelStyle, b.name)
		s.text(a.at(b.end())+9, mid+4, "start", labelStyle, b.label())
	}
	s.line(a.at(0), y, a.at(0), bottom, faint, 1, "zero")
}

// bestColor is the color of the marks of best values. No bar has it.
const bestColor = "#000000"
