// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// bar is a figure with its spread.
type bar struct {
	name   string
	value  Spread
	format string
	// best, if set, is marked beside the bar's end.
	best   *float64
	colour string
	valid  bool
}

// barPanel draws bars from left to right, one for each row, with names on the left and medians at their ends. An error
// mark reaches from the smallest to the largest value.
type barPanel struct {
	heading, unit string
	bars          []bar
	// names is the room for names; it, axis and ticks may be those of several panels.
	names float64
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

func (b bar) label() string { return fmt.Sprintf(b.format, b.value.Median) }

func (b bar) shown() string {
	if b.valid {
		return b.name
	}
	return b.name + " (invalid)"
}

func (p barPanel) draw(s *svg, x, y, width float64) {
	figures := 0.0
	for _, b := range p.bars {
		figures = max(figures, labelStyle.width(b.label()))
	}
	a := p.axis.on(x+min(p.names, width/2)+10, x+width-figures-12)
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
		title := fmt.Sprintf("%s: %s %s (%s to %s)", b.shown(), b.label(), p.unit, fmt.Sprintf(b.format, b.value.Min),
			fmt.Sprintf(b.format, b.value.Max))
		fill, class := b.colour, "bar"
		if !b.valid {
			fill, class = invalidFill, "bar invalid"
		}
		zero, end := a.at(0), a.at(b.value.Median)
		s.rect(min(zero, end), mid-barWidth/2, max(end-zero, zero-end), barWidth, fill, class, title)
		rightmost := end
		if b.value.Min != b.value.Max {
			whisker(s, a.at(b.value.Min), a.at(b.value.Max), mid, "error")
			rightmost = max(rightmost, a.at(b.value.Max))
		}
		if b.best != nil {
			mark(s, a.at(*b.best), mid, 5, "diamond", bestColour, "best", fmt.Sprintf("best: "+b.format, *b.best))
			rightmost = max(rightmost, a.at(*b.best)+5)
		}
		s.text(a.from-8, mid+4, "end", labelStyle, b.shown())
		s.text(max(rightmost, zero)+7, mid+4, "start", labelStyle, b.label())
	}
	s.line(a.at(0), y, a.at(0), bottom, faint, 1, "zero")
}

// bestColour is black, which no bar has.
const bestColour = "#000000"
