// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many lines that are the same stand around those that differ.
const around = 3

// mostCompared bounds the products of the lines of two documents that are compared line by line.
const mostCompared = 16 << 20

// unified returns the lines in which two texts differ, as diff -u writes them, nothing if they are the same.
func unified(from, to, a, b string) (out []string) {
	if a == b {
		return nil
	}
	edits := compare(textLines(a), textLines(b))
	out = []string{"--- " + from, "+++ " + to}
	for n := 0; n < len(edits); {
		if edits[n].mark == ' ' {
			n++
			continue
		}
		first, end := max(n-around, 0), n
		for at := n; at < len(edits) && at <= end+2*around; at++ {
			if edits[at].mark != ' ' {
				end = at
			}
		}
		last := min(end+around+1, len(edits))
		hunk := edits[first:last]
		inA, inB := count(hunk, '-'), count(hunk, '+')
		out = append(out, fmt.Sprintf("@@ -%d,%d +%d,%d @@", count(edits[:first], '-')+1, inA, count(edits[:first], '+')+1, inB))
		for _, e := range hunk {
			out = append(out, string(e.mark)+e.line)
		}
		n = last
	}
	return out
}

type lineEdit struct {
	mark rune // ' ', '-' or '+'
	line string
}

// count counts the lines of one side.
func count(edits []lineEdit, side rune) (n int) {
	for _, e := range edits {
		if e.mark == ' ' || e.mark == side {
			n++
		}
	}
	return n
}

func textLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare returns a shortest way from a to b, by the longest common subsequence of what is between the lines that both begin and end with.
func compare(a, b []string) (edits []lineEdit) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		edits = append(edits, lineEdit{' ', a[head]})
		head++
	}
	a, b = a[head:], b[head:]
	var tail []lineEdit
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, lineEdit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	if len(a)*len(b) > mostCompared {
		for _, l := range a {
			edits = append(edits, lineEdit{'-', l})
		}
		for _, l := range b {
			edits = append(edits, lineEdit{'+', l})
		}
		return append(edits, tail...)
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			edits = append(edits, lineEdit{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[(i+1)*width+j] >= common[i*width+j+1]):
			edits = append(edits, lineEdit{'-', a[i]})
			i++
		default:
			edits = append(edits, lineEdit{'+', b[j]})
			j++
		}
	}
	return append(edits, tail...)
}
