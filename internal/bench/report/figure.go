// SPDX-License-Identifier: Apache-2.0

package report

// Colors of Okabe and Ito, which color-blind people can distinguish. Warm colors are for culvert, cold ones for its peers.
var (
	warm = []string{"#d55e00", "#e69f00", "#cc79a7", "#8c3b00"}
	cold = []string{"#0072b2", "#56b4e9", "#009e73", "#444444"}
)

const (
	ink     = "#222222"
	faint   = "#666666"
	grid    = "#dddddd"
	margin  = 16.0
	picture = 920.0
	gap     = 24.0
)

var (
	titleStyle   = textStyle{size: 18, color: ink, bold: true}
	headingStyle = textStyle{size: 13, color: ink, bold: true}
	labelStyle   = textStyle{size: 12, color: ink}
	tickStyle    = textStyle{size: 11, color: faint}
	footStyle    = textStyle{size: 10, color: faint}
)

// figurePlot is one picture: a title, a legend, panels in columns, and foot lines such as the machine.
type figurePlot struct {
	title, subtitle string
	legend          []key
	panels          []panel
	columns         int
	foot            []string
}

// panel is one diagram of a picture.
type panel interface {
	height() float64
	draw(s *svg, x, y, width float64)
}

// key is an entry of a legend.
type key struct {
	label string
	swatch
}

// svg draws the picture.
func (f figurePlot) svg() []byte {
	s := &svg{}
	y := margin + titleStyle.size
	s.text(margin, y, "start", titleStyle, f.title)
	if f.subtitle != "" {
		y += 20
		s.text(margin, y, "start", labelStyle, f.subtitle)
	}
	y = f.drawLegend(s, y+14)
	columns := min(max(f.columns, 1), max(len(f.panels), 1))
	width := (picture - 2*margin - gap*float64(columns-1)) / float64(columns)
	for i := 0; i < len(f.panels); i += columns {
		tallest := 0.0
		for n, p := range f.panels[i:min(i+columns, len(f.panels))] {
			p.draw(s, margin+float64(n)*(width+gap), y, width)
			tallest = max(tallest, p.height())
		}
		y += tallest + 10
	}
	for _, line := range f.foot {
		for _, part := range wrap(line, int((picture-2*margin)/footStyle.width("x"))) {
			y += 14
			s.text(margin, y, "start", footStyle, part)
		}
	}
	return s.document(picture, y+margin, f.title)
}

// drawLegend draws the keys in lines from y on, and returns the y below them.
func (f figurePlot) drawLegend(s *svg, y float64) float64 {
	if len(f.legend) == 0 {
		return y
	}
	x := margin
	y += 10
	for _, k := range f.legend {
		width := 30 + labelStyle.width(k.label) + 18
		if x > margin && x+width > picture-margin {
			x, y = margin, y+20
		}
		k.draw(s, x, y)
		s.text(x+30, y+4, "start", labelStyle, k.label)
		x += width
	}
	return y + 18
}

// wrap splits text at blanks into lines of at most width runes. A longer word has a longer line.
func wrap(text string, width int) []string {
	var lines []string
	line, last := []rune{}, -1
	for _, r := range text {
		if r == ' ' {
			last = len(line)
		}
		line = append(line, r)
		if len(line) > width && last > 0 {
			lines = append(lines, string(line[:last]))
			line, last = append([]rune{}, line[last+1:]...), -1
		}
	}
	return append(lines, string(line))
}
