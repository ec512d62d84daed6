// SPDX-License-Identifier: Apache-2.0

package cbpf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/net/bpf"

	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/pcap"
)

// icmpDDD and icmpDD are what tcpdump -ddd and -dd print for icmp.
const (
	icmpDDD = "6\n40 0 0 12\n21 0 3 2048\n48 0 0 23\n21 0 1 1\n6 0 0 262144\n6 0 0 0\n"
	icmpDD  = "{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 3, 0x00000800 },\n{ 0x30, 0, 0, 0x00000017 },\n" +
		"{ 0x15, 0, 1, 0x00000001 },\n{ 0x6, 0, 0, 0x00040000 },\n{ 0x6, 0, 0, 0x00000000 },\n"
)

func TestParse(t *testing.T) {
	for _, text := range []string{icmpDDD, icmpDD, "\n\n" + icmpDDD + "\n", strings.ReplaceAll(icmpDD, "\n", "\r\n"),
		strings.ReplaceAll(icmpDDD, " ", "\t "), strings.ReplaceAll(icmpDD, "},", "}")} {
		p, err := cbpf.Parse([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if p.String() != icmpDDD {
			t.Errorf("%q: got %q", text, p)
		}
		if !cbpf.LooksRaw([]byte(text)) {
			t.Errorf("%q looks like an expression", text)
		}
	}
	for _, expr := range []string{"", "icmp", "port 53", "len > 5", "1 = 1", "ip[0] = 1", "(icmp)"} {
		if cbpf.LooksRaw([]byte(expr)) {
			t.Errorf("%q looks like a program", expr)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "line 1: no program"},
		{"\n\n", "line 1: no program"},
		{"x\n", "line 1: \"x\" is no count"},
		{"0\n", "line 1: 0 instructions"},
		{"4097\n", "line 1: 4097 instructions"},
		{"-1\n", "line 1: \"-1\" is no count"},
		{"99999999999\n", "line 1: \"99999999999\" is no count"},
		{"2\n6 0 0 0\n", "line 1: 2 instructions, but 1 follow"},
		{"1\n6 0 0 0\n6 0 0 0\n", "line 3: more than the 1 instructions"},
		{"2\n6 0 0 0\n6 0 0\n", "line 3: \"6 0 0\" is not four decimal numbers"},
		{"2\n6 0 0 0\n6 0 0 0 0\n", "line 3: \"6 0 0 0 0\" is not four"},
		{"1\n\n0x6 0 0 0\n", "line 3: \"0x6\" is no number of 16 bits"},
		{"1\n65536 0 0 0\n", "line 2: \"65536\" is no number of 16 bits"},
		{"1\n6 256 0 0\n", "line 2: \"256\" is no number of 8 bits"},
		{"1\n6 0 -1 0\n", "line 2: \"-1\" is no number of 8 bits"},
		{"1\n6 0 0 4294967296\n", "line 2: \"4294967296\" is no number of 32 bits"},
		{"{ 0x6, 0, 0, 0 },\n{ 0x6, 0, 0 },\n", "line 2: \"{ 0x6, 0, 0 },\" is not a C initializer"},
		{"{ 0x6, 0, 0, 0 ,\n", "line 1: \"{ 0x6, 0, 0, 0 ,\" is not a C initializer"},
		{"{ 0x6, 0, 0, 0 },\n6 0 0 0\n", "line 2: \"6 0 0 0\" is not a C initializer"},
		{"{ 0x6, 0, 0, 1_0 },\n", "line 1: \"1_0\" is no number of 32 bits"},
		{"{ 0x6, 0, 0, 0x100000000 },\n", "line 1: \"0x100000000\" is no number of 32 bits"},
		{"{ 6, , 0, 0 },\n", "line 1: \"\" is no number of 8 bits"},
		{strings.Repeat("{ 0x6, 0, 0, 0 },\n", 4097), "line 4097: more than 4096"},
		{"tcpdump: syntax error", "line 1: \"tcpdump: syntax error\" is no count"},
		{strings.Repeat("x", 100) + "\n", "line 1: \"" + strings.Repeat("x", 40) + "...\" is no count"},
	} {
		p, err := cbpf.Parse([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: got %v and the error %v, want %q", test.text, p, err, test.want)
		}
	}
}

func ret(k uint32) bpf.RawInstruction { return bpf.RawInstruction{Op: 0x06, K: k} }

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name string
		p    cbpf.Program
		want string // empty: nothing is wrong
	}{
		{"nothing", nil, "the program is empty"},
		{"ret", cbpf.Program{ret(0)}, ""},
		{"the most", append(slices.Repeat(cbpf.Program{{Op: 0x07}}, 4095), ret(1)), ""},
		{"too many", slices.Repeat(cbpf.Program{ret(0)}, 4097), "at most 4096"},
		{"no ret", cbpf.Program{{Op: 0x28, K: 12}}, "instruction 0: the last instruction has to be ret"},
		{"ret a", cbpf.Program{{Op: 0x16}}, ""},
		{"ret x", cbpf.Program{{Op: 0x0e}}, "instruction 0: there is no operation with the code 0xe"},
		{"wide code", cbpf.Program{{Op: 0x106}}, "no operation with the code 0x106"},
		{"jump far", cbpf.Program{{Op: 0x15, Jt: 0, Jf: 1}, ret(0)}, "instruction 0: it jumps beyond the end"},
		{"jump far if true", cbpf.Program{{Op: 0x15, Jt: 1}, ret(0)}, "instruction 0: it jumps beyond the end"},
		{"ja far", cbpf.Program{{Op: 0x05, K: 1}, ret(0)}, "instruction 0: it jumps beyond the end"},
		{"ja very far", cbpf.Program{{Op: 0x05, K: 0x7fffffff}, ret(0)}, "instruction 0: it jumps beyond the end"},
		{"ja back", cbpf.Program{ret(0), {Op: 0x05, K: 0xfffffffe}, ret(0)}, "instruction 1: it jumps backwards"},
		{"m", cbpf.Program{{Op: 0x60, K: 15}, {Op: 0x03, K: 15}, ret(0)}, ""},
		{"ld m", cbpf.Program{{Op: 0x60, K: 16}, ret(0)}, "instruction 0: the word M[16] is beyond M[15]"},
		{"ldx m", cbpf.Program{{Op: 0x61, K: 0xffffffff}, ret(0)}, "M[4294967295]"},
		{"st", cbpf.Program{{Op: 0x02, K: 16}, ret(0)}, "M[16]"},
		{"stx", cbpf.Program{ret(1), {Op: 0x03, K: 16}, ret(0)}, "instruction 1: the word M[16]"},
		{"div", cbpf.Program{{Op: 0x34, K: 0}, ret(0)}, "it divides by 0"},
		{"mod", cbpf.Program{{Op: 0x94, K: 0}, ret(0)}, "it divides by 0"},
		{"div x", cbpf.Program{{Op: 0x3c, K: 0}, ret(0)}, ""},
		{"lsh", cbpf.Program{{Op: 0x64, K: 32}, ret(0)}, "it shifts by 32 bits"},
		{"rsh", cbpf.Program{{Op: 0x74, K: 31}, ret(0)}, ""},
		{"rsh x", cbpf.Program{{Op: 0x7c, K: 99}, ret(0)}, ""},
		{"direction", cbpf.Program{{Op: 0x28, K: 0xfffff004}, ret(0)}, "what XDP cannot see: the direction of a packet"},
		{"ifindex", cbpf.Program{{Op: 0x20, K: 0xfffff008}, ret(0)}, "the number of the interface"},
		{"tag", cbpf.Program{{Op: 0x30, K: 0xfffff030}, ret(0)}, "a VLAN tag that the device has stripped"},
		{"unknown", cbpf.Program{{Op: 0x30, K: 0xffffffff}, ret(0)}, "what is at offset -1"},
		{"network", cbpf.Program{{Op: 0x30, K: 0xfff00008}, ret(0)}, "the network header"},
		{"link", cbpf.Program{{Op: 0x48, K: 0xffe00000}, ret(0)}, "the link header"},
		{"far", cbpf.Program{{Op: 0x30, K: 0xffdfffff}, ret(0)}, ""},
	} {
		err := test.p.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		if _, again := test.p.Translate(cbpf.Options{Match: "m", NoMatch: "n", Short: "s"}); (again == nil) != (err == nil) {
			t.Errorf("%s: Check says %v, Translate %v", test.name, err, again)
		}
	}
	for op := range uint16(512) {
		want := strings.Contains(knownCodes, fmt.Sprintf(" %02x ", op))
		p := cbpf.Program{{Op: op, K: 1}, ret(0), ret(0), ret(0)}
		if err := p.Check(); (err == nil) != want {
			t.Errorf("code %#x: %v", op, err)
		}
	}
}

// knownCodes are the codes of bpf_check_classic in the kernel's net/core/filter.c.
const knownCodes = " 00 01 02 03 04 05 06 07 0c 14 15 16 1c 1d 20 24 25 28 2c 2d 30 34 35 3c 3d 40 44 45 48 4c 4d 50 54 5c" +
	" 60 61 64 6c 74 7c 80 81 84 87 94 9c a4 ac b1 "

// TestInstructionCounts checks how long the code of some expressions is, for packets with at least 54 bytes in the first buffer.
func TestInstructionCounts(t *testing.T) {
	for _, test := range []struct {
		expr      string
		near, far int
	}{
		{"", 1, 0},
		{"icmp", 4, 0},
		{"src host 10.0.0.1", 9, 0},
		{"net 192.0.2.0/24", 17, 0},
		{"udp port 53 and net 192.0.2.0/24", 26, 49},
		{"tcp[tcpflags] & tcp-syn != 0", 17, 13},
	} {
		p, err := pcap.Compile(test.expr)
		if err != nil {
			t.Fatal(err)
		}
		var far asm.Instructions
		code, err := p.Translate(cbpf.Options{Prefix: "p", Match: "match", NoMatch: "no", Short: "short", Next: "no",
			Stack: -64, Have: 54, Far: &far})
		if err != nil || len(code) != test.near || len(far) != test.far {
			t.Errorf("%q: %d and %d instructions, not %d and %d, error %v\n%v", test.expr, len(code), len(far), test.near,
				test.far, err, code)
		}
	}
}

func TestTooLarge(t *testing.T) {
	p := append(slices.Repeat(cbpf.Program{{Op: 0x40, K: 20000}}, 4095), ret(1))
	if _, err := p.Translate(cbpf.Options{Match: "m", NoMatch: "n", Short: "s"}); err == nil ||
		!strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v", err)
	}
}

func TestReplaceFunction(t *testing.T) {
	spec, err := loadRules()
	if err != nil {
		t.Fatal(err)
	}
	insns := spec.Programs["run"].Instructions
	body := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	out, err := cbpf.ReplaceFunction(insns, "filter_rules", body)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(insns)-2 { // the old body has four instructions, the new one two
		t.Errorf("%d instructions, from %d", len(out), len(insns))
	}
	for _, bad := range []struct {
		name string
		body asm.Instructions
		want string
	}{
		{"filter_rule", body, "has none of that name"},
		{"filter_rules", nil, "is empty"},
		{"filter_rules", asm.Instructions{asm.Return().WithSymbol("x")}, "starts with a label"},
	} {
		if _, err := cbpf.ReplaceFunction(insns, bad.name, bad.body); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: got %v, want %q", bad.name, err, bad.want)
		}
	}
}
