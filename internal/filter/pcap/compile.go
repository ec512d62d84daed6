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

// longest, in words, keeps libpcap's optimizer, whose time grows with the third power of them, below some seconds.
const longest = 600

// Compile makes a program of an expression (pcap-filter(7)) for whole Ethernet frames. The empty one matches all.
func Compile(expr string) (cbpf.Program, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	if strings.ContainsRune(expr, 0) {
		return nil, errors.New("compile an expression: it has a byte of value 0")
	}
	if n := len(strings.Fields(expr)); n > longest {
		return nil, fmt.Errorf("compile an expression of %d words: libpcap takes minutes over more than %d: put addresses into a set", n, longest)
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

// oneLine is an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// syntaxError is part of what libpcap says if the order of words is wrong. It does not say of which.
const syntaxError = "syntax error"

// illegal is a word that libpcap's scanner refuses, with another message than that for a syntax error.
const illegal = " 99999999999"

// maxWords is up to how many words it is tried to find the wrong one.
const maxWords = 500

// position finds the word of an expression that libpcap refuses, by compiling its beginnings.
//
// After a syntax error, an illegal word is put behind them. The parser gets there only if it takes the words
// before: so the first beginning for which it still speaks of the syntax ends in the wrong word. For all other
// errors it is the first beginning with the same error.
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

// wordEnds are the ends of the words and operators of an expression.
func wordEnds(expr string) (ends []int) {
	kind := func(c byte) int {
		switch {
		case strings.IndexByte(space, c) >= 0:
			return 0
		case strings.IndexByte("()[]", c) >= 0:
			return 1 // each for itself
		case strings.IndexByte("!&|<>=+*/%^~", c) >= 0:
			return 2
		}
		return 3
	}
	for i := range len(expr) {
		k := kind(expr[i])
		if k != 0 && (i+1 == len(expr) || kind(expr[i+1]) != k || k == 1) {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// Judge runs a program in libpcap's own interpreter: for tests, which compare with it.
type Judge struct {
	lib *library
	p   cbpf.Program
}

// NewJudge refuses what libpcap's interpreter cannot run.
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

// Match tells whether libpcap matches a frame of which the first bytes have been captured. wireLen is the length of
// the whole of it.
func (j *Judge) Match(frame []byte, wireLen int) bool {
	return j.lib.filter(unsafe.Pointer(unsafe.SliceData(j.p)), unsafe.Pointer(unsafe.SliceData(frame)), uint32(wireLen),
		uint32(len(frame))) != 0
}
