// SPDX-License-Identifier: Apache-2.0

// Package cbpf reads classic BPF programs as tcpdump prints them, checks them and translates them to native eBPF for XDP. A
// translated program matches the same packets as in libpcap's interpreter (pcap_offline_filter(3)).
package cbpf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/bpf"
)

// MaxInstructions is the kernel's own limit for classic BPF (BPF_MAXINSNS).
const MaxInstructions = 4096

// Program is a classic BPF program. It matches a packet if it returns a number other than 0.
type Program []bpf.RawInstruction

// LooksRaw tells whether a text is meant as a program for Parse, and not as an expression.
func LooksRaw(text []byte) bool {
	first, rest, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	first = strings.TrimSpace(first)
	if strings.HasPrefix(first, "{") {
		return true
	}
	_, err := strconv.ParseUint(first, 10, 64)
	return err == nil && (rest != "" || !strings.ContainsAny(first, " \t"))
}

// Parse reads the output of tcpdump -ddd (a count, then lines of four decimal numbers) or of tcpdump -dd (lines of C
// initializers). It does not check the program; Program.Check does.
func Parse(text []byte) (Program, error) {
	var p Program
	count, c := -1, false
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if p == nil && count < 0 {
			c = line[0] == '{'
		}
		if len(p) == MaxInstructions {
			return nil, fmt.Errorf("line %d: more than %d instructions", i+1, MaxInstructions)
		}
		if !c && count < 0 {
			n, err := strconv.ParseUint(line, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s is no count of instructions: write what tcpdump -ddd prints", i+1,
					quote(line))
			}
			if n == 0 || n > MaxInstructions {
				return nil, fmt.Errorf("line %d: %d instructions: there can be 1 to %d", i+1, n, MaxInstructions)
			}
			count = int(n)
			continue
		}
		if !c && len(p) == count {
			return nil, fmt.Errorf("line %d: more than the %d instructions of the first line", i+1, count)
		}
		ins, err := parseLine(line, c)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		p = append(p, ins)
	}
	if !c && count >= 0 && len(p) < count {
		return nil, fmt.Errorf("line 1: %d instructions, but %d follow: the text is truncated", count, len(p))
	}
	if len(p) == 0 {
		return nil, errors.New("line 1: no program: write what tcpdump -ddd or tcpdump -dd prints")
	}
	return p, nil
}

// parseLine reads an instruction. With c it is a C initializer, in decimal or hexadecimal.
func parseLine(line string, c bool) (ins bpf.RawInstruction, err error) {
	words, base := strings.Fields(line), 10
	form := "four decimal numbers: code jt jf k"
	if c {
		form, base = "a C initializer: { code, jt, jf, k },", 0
		inner, ok := strings.CutSuffix(strings.TrimSuffix(line, ","), "}")
		inner, open := strings.CutPrefix(inner, "{")
		if !ok || !open {
			return ins, fmt.Errorf("%s is not %s", quote(line), form)
		}
		words = strings.Split(inner, ",")
	}
	if len(words) != 4 {
		return ins, fmt.Errorf("%s is not %s", quote(line), form)
	}
	var v [4]uint64
	for i, bits := range [4]int{16, 8, 8, 32} {
		word := strings.TrimSpace(words[i])
		if v[i], err = strconv.ParseUint(word, base, bits); err != nil || strings.Contains(word, "_") {
			return ins, fmt.Errorf("%s is no number of %d bits", quote(word), bits)
		}
	}
	return bpf.RawInstruction{Op: uint16(v[0]), Jt: uint8(v[1]), Jf: uint8(v[2]), K: uint32(v[3])}, nil
}

// quote quotes input, of which it shortens what has more than 40 bytes.
func quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.Quote(s)
}

// String returns the program as tcpdump -ddd prints it, with a newline at the end. Parse reads it.
func (p Program) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, len(p))
	for _, ins := range p {
		fmt.Fprintln(&b, ins.Op, ins.Jt, ins.Jf, ins.K)
	}
	return b.String()
}
