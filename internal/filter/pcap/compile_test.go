// SPDX-License-Identifier: Apache-2.0

package pcap

import (
	"strings"
	"sync"
	"testing"
)

// TestCompile compares programs with what tcpdump 4.99 prints.
func TestCompile(t *testing.T) {
	for expr, want := range map[string]string{
		"":              "1\n6 0 0 262144\n",
		"icmp":          "6\n40 0 0 12\n21 0 3 2048\n48 0 0 23\n21 0 1 1\n6 0 0 262144\n6 0 0 0\n",
		"greater 100":   "4\n128 0 0 0\n53 0 1 100\n6 0 0 262144\n6 0 0 0\n",
		"ether[0] = 77": "4\n48 0 0 0\n21 0 1 77\n6 0 0 262144\n6 0 0 0\n",
	} {
		p, err := Compile(expr)
		if err != nil || p.String() != want {
			t.Errorf("%q: got %q, %v", expr, p, err)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, test := range []struct{ expr, want string }{
		{"tcp prot 80", `libpcap: can't parse filter expression: syntax error, at column 5 ("prot")`},
		{"tcp and (udp or", "syntax error, at the end: something is missing"},
		{"(tcp", "syntax error, at the end"},
		{"tcp)", `syntax error, at column 4 (")")`},
		{"tcp & & udp", `syntax error, at column 5 ("&")`},
		{"port 80 port 81", `syntax error, at column 9 ("port")`},
		{"tcp &&& udp", `syntax error, at column 5 ("&&&")`},
		{"nonsense", `syntax error, at column 1 ("nonsense")`},
		{"icmp\nand prot", `column 10 ("prot")`},
		{"tcp and host 300.1.1.1", `libpcap: invalid IPv4 address '300.1.1.1', at column 14 ("300.1.1.1")`},
		{"tcp port 99999", `illegal port number 99999 > 65535, at column 10 ("99999")`},
		{"udp port nosuchservice", `unknown port 'nosuchservice', at column 10 ("nosuchservice")`},
		{"ip[0] << 40 = 1", `shift by more than 31 bits, at column 10 ("40")`},
		{"ip[0]/0 = 1", "division by zero"},
		{"icmp and icmp6 and arp", `expression rejects all packets, at column 10 ("icmp6")`},
		{"ip broadcast", "netmask not known"},
		{strings.Repeat("host 192.0.2.1 or ", 300) + "arp", "into a set"},
		{"inbound", "XDP cannot see: the direction of a packet"},
		{"tcp and outbound", "XDP cannot see: the direction of a packet"},
		{"ifindex 3", "XDP cannot see: the number of the interface"},
		{"ip6 protochain 6", "it jumps backwards (protochain does)"},
		{"icmp\x00", "it has a byte of value 0"},
		{strings.Repeat("icmp or ", 280) + "prot", "syntax error"},
	} {
		_, err := Compile(test.expr)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: got %v, want %q", test.expr, err, test.want)
		}
	}
}

func TestNoLibrary(t *testing.T) {
	_, err := open([]string{"libnosuch.so.1", "libnosuch.so.2"})
	if err == nil || !strings.Contains(err.Error(), "install the package libpcap0.8") ||
		!strings.Contains(err.Error(), "libnosuch.so.2") {
		t.Errorf("got %v", err)
	}
	if _, err := open([]string{"libnosuch.so.1", "libc.so.6"}); err == nil || !strings.Contains(err.Error(), "no function pcap") &&
		!strings.Contains(err.Error(), "no function bpf") {
		t.Errorf("a library that is not libpcap: %v", err)
	}
}

func TestCompileInParallel(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if p, err := Compile("udp port 53 and net 192.0.2.0/24"); err != nil || len(p) != 20 {
					t.Errorf("%d instructions, %v", len(p), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestJudge(t *testing.T) {
	p, err := Compile("greater 100 and ether[20] = 7")
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJudge(p)
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 21)
	frame[20] = 7
	for _, test := range []struct {
		name    string
		frame   []byte
		wireLen int
		want    bool
	}{
		{"long enough", frame, 100, true},
		{"too short", frame, 99, false},
		{"byte 20 not captured", frame[:20], 100, false},
		{"nothing captured", nil, 100, false},
	} {
		if got := j.Match(test.frame, test.wireLen); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if _, err := NewJudge(p[:1]); err == nil {
		t.Error("no error for a program without an end")
	}
}
