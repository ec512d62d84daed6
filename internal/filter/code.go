// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/net/bpf"

	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/pcap"
)

// maxText bounds the text of an expression or a program. The longest program that is possible is far shorter.
const maxText = 1 << 20

// Compile compiles an expression of libpcap to classic BPF. It returns the expression with single spaces between its words. The text
// may also be a program, as tcpdump -ddd or -dd prints it; then expr is empty.
func Compile(text string) (code []bpf.RawInstruction, expr string, err error) {
	expr = strings.Join(strings.Fields(text), " ")
	switch {
	case expr == "": // libpcap's empty expression matches every packet
		return nil, "", errors.New("the expression is empty")
	case strings.HasPrefix(expr, "(000)"):
		return nil, "", errors.New("this is what tcpdump -d prints: use tcpdump -ddd or -dd")
	case cbpf.LooksRaw([]byte(text)):
		p, err := cbpf.Parse([]byte(text))
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			return nil, "", fmt.Errorf("classic BPF: %w", err)
		}
		return p, "", nil
	}
	if i := strings.IndexFunc(expr, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return nil, "", fmt.Errorf("the expression has a character that cannot be printed: %.40q", expr[i:])
	}
	p, err := pcap.Compile(expr)
	if err != nil {
		return nil, "", err
	}
	return p, expr, nil
}

// matchesAll tells whether a program matches every packet at its first instruction.
func matchesAll(code []bpf.RawInstruction) bool {
	const retK = 0x06
	return len(code) == 0 || code[0].Op == retK && code[0].K != 0
}

// ReadText returns the text of an expression or a program in a file, or from stdin if path is "-".
func ReadText(path string, stdin io.Reader) (string, error) {
	name, in := "standard input", stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", path, plainPath(err))
		}
		defer f.Close()
		name, in = path, f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", name, plainPath(err))
	case len(b) > maxText:
		return "", fmt.Errorf("%s is longer than %d bytes: that is no expression", name, maxText)
	case strings.TrimSpace(string(b)) == "":
		return "", fmt.Errorf("%s is empty: want an expression, or what tcpdump -ddd prints", name)
	}
	return string(b), nil
}

// plainPath returns err without the path, which the caller's message has already.
func plainPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
