// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// svg collects the elements of a picture. Lengths are in pixels, y grows downwards. The same calls give the same
// bytes.
type svg struct{ b strings.Builder }

// attrs are the attributes of an element, as name and value in turns.
type attrs []string

// element writes an element with attributes and text. A browser shows title under the pointer.
func (s *svg) element(name string, a attrs, text, title string) {
	s.b.WriteString("<" + name)
	for i := 0; i+1 < len(a); i += 2 {
		s.b.WriteString(" " + a[i] + `="` + escape(a[i+1]) + `"`)
	}
	if text == "" && title == "" {
		s.b.WriteString("/>\n")
		return
	}
	s.b.WriteString(">")
	if title != "" {
		s.b.WriteString("<title>" + escape(title) + "</title>")
	}
	s.b.WriteString(escape(text) + "</" + name + ">\n")
}

func escape(text string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(text)); err != nil {
		return ""
	}
	return b.String()
}

// px writes a length in pixels, rounded to a tenth.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(v*10)/10+0, 'f', -1, 64)
}

// text writes a line of text. anchor is start, middle or end: the part of the text that is at x.
func (s *svg) text(x, y float64, anchor string, style textStyle, text string) {
	a := attrs{"x", px(x), "y", px(y), "font-size", px(style.size), "fill", style.color}
	if anchor != "start" {
		a = append(a, "text-anchor", anchor)
	}
	if style.bold {
		a = append(a, "font-weight", "bold")
	}
	if style.turned {
		a = append(a, "transform", fmt.Sprintf("rotate(-90 %s %s)", px(x), px(y)))
	}
	s.element("text", a, text, "")
}

func (s *svg) line(x1, y1, x2, y2 float64, color string, width float64, class string) {
	a := attrs{"x1", px(x1), "y1", px(y1), "x2", px(x2), "y2", px(y2), "stroke", color, "stroke-width", px(width)}
	if class != "" {
		a = append(attrs{"class", class}, a...)
	}
	s.element("line", a, "", "")
}

func (s *svg) rect(x, y, w, h float64, fill, class, title string) {
	a := attrs{"x", px(x), "y", px(y), "width", px(max(w, 0)), "height", px(max(h, 0)), "fill", fill}
	if class != "" {
		a = append(attrs{"class", class}, a...)
	}
	s.element("rect", a, "", title)
}

// textStyle is how text looks.
type textStyle struct {
	size         float64
	color        string
	bold, turned bool
}

// width is an upper bound for the width of text in pixels, because fonts differ.
func (t textStyle) width(text string) float64 {
	each := 0.62
	if t.bold {
		each = 0.68
	}
	return each * t.size * float64(len([]rune(text)))
}

// document returns the whole file. It has a white background, so that it is readable on a dark page too.
func (s *svg) document(width, height float64, title string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" `+
		`role="img" font-family="'DejaVu Sans', Verdana, Helvetica, Arial, sans-serif">`+"\n", px(width), px(height))
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(title))
	b.WriteString(`<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" ` +
		`patternTransform="rotate(45)"><rect width="6" height="6" fill="#eeeeee"/>` +
		`<line x1="0" y1="0" x2="0" y2="6" stroke="#999999" stroke-width="3"/></pattern></defs>` + "\n")
	fmt.Fprintf(&b, `<rect width="%s" height="%s" fill="#ffffff"/>`+"\n", px(width), px(height))
	b.WriteString(s.b.String())
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
