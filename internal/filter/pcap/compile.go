// SPDX-License-Identifier: Apache-2.0

package pcap

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"

	"culvert/internal/filter/cbpf"
)

type instruction = bpf.RawInstruction

// maxExpression is how many words an expression may have. The time of libpcap's optimizer grows with their third power. It takes
// some seconds for that many.
const maxExpression = 600

// Compile compiles an expression (pcap-filter(7)) to classic BPF for Ethernet frames. The empty expression matches all frames.
func Compile(expr string) (cbpf.Program, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(expr, 0) {
		return nil, errors.New("compile an expression: it has a byte of value 0")
	}
	if n := len(strings.Fields(expr)); n > maxExpression {
		return nil, fmt.Errorf("compile an expression of %d words: libpcap takes minutes for more than %d: put addresses into a set", n, maxExpression)
	}
	p, err := lib.tryCompile(expr)
	if err != nil {
		message := oneLine(err)
		return nil, fmt.Errorf("compile %q: libpcap: %s%s", expr, message, lib.position(expr, message))
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("compile %q: %w", expr, err)
	}
	return p, nil
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// syntaxError is in libpcap's message if the order of words is wrong. The message does not name the word.
const syntaxError = "syntax error"

// illegal is a word that libpcap's scanner refuses. Its message is not that of a syntax error.
const illegal = " 99999999999"

// maxWords is the greatest number of words in which position looks for the wrong one.
const maxWords = 500

// position returns where the word is that libpcap refuses, given its message. It returns "" if it does not know. It compiles the
// beginnings of the expression, one after the other.
//
// After a syntax error it adds an illegal word to each beginning. The parser reaches that word only if it accepts all words before
// it. So the first beginning that results in a syntax error ends with the wrong word. After another error it is the last word of the
// first beginning that results in the same error.
func (lib *library) position(expr, message string) string {
	ends := wordEnds(expr)
	if len(ends) > maxWords {
		return ""
	}
	syntax := strings.Contains(message, syntaxError)
	start := 0
	for _, end := range ends {
		try := expr[:end]
		if syntax {
			try += illegal
		}
		if _, err := lib.tryCompile(try); err != nil && oneLine(err) == message {
			word := strings.TrimLeft(expr[start:end], space)
			return fmt.Sprintf(", at column %d (%q)", end-len(word)+1, word)
		}
		start = end
	}
	if syntax {
		return ", at the end: something is missing"
	}
	return ""
}

const space = " \t\r\n"

// wordEnds returns the ends of the words and operators of an expression. Each bracket is a word.
func wordEnds(expr string) (ends []int) {
	const (
		blank = iota
		bracket
		operator
		letter
	)
	kind := func(c byte) int {
		switch {
		case strings.IndexByte(space, c) >= 0:
			return blank
		case strings.IndexByte("()[]", c) >= 0:
			return bracket
		case strings.IndexByte("!&|<>=+*/%^~", c) >= 0:
			return operator
		}
		return letter
	}
	for i := range len(expr) {
		k := kind(expr[i])
		if k != blank && (i+1 == len(expr) || kind(expr[i+1]) != k || k == bracket) {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// Judge runs a program in libpcap's interpreter. Tests compare verdicts with it.
type Judge struct {
	lib *library
	p   cbpf.Program
}

// NewJudge returns a judge for a program, which has to pass its Check.
func NewJudge(p cbpf.Program) (*Judge, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &Judge{lib: lib, p: p}, nil
}

// Match tells whether the program matches a frame of wireLen bytes, of which the first ones were captured.
func (j *Judge) Match(frame []byte, wireLen int) bool {
	return j.lib.filter(unsafe.Pointer(unsafe.SliceData(j.p)), unsafe.Pointer(unsafe.SliceData(frame)), uint32(wireLen),
		uint32(len(frame))) != 0
}
