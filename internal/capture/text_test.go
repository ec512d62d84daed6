// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"culvert/internal/bpfobj"
)

// oddFrame is a frame of an EtherType that tcpdump does not know: it prints its bytes in further lines.
func oddFrame() string {
	return "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5" + strings.Repeat("odd bytes ", 5)
}

// oneLine is a line of a capture.
var oneLine = regexp.MustCompile(`^\d\d:\d\d:\d\d\.(\d{9}) (eth\d) (In |Out) (.*) \[(.*) #(\d+)\]$`)

// TestLinesOfTcpdump prints packets by tcpdump, some of them in several lines, and cut off. Each line is at its packet.
func TestLinesOfTcpdump(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	l := newLines(newOutput(&out), 128, sampleNames)
	if _, ok := l.decode.(*tcpdump); !ok {
		t.Fatalf("lines of %T", l.decode)
	}
	odd := &Packet{ID: 7, In: frameAt(5, 1, 64, oddFrame()), Reason: reasonOf(bpfobj.PipelineReasonPASS_OTHER)}
	cut := &Packet{ID: 8, In: frameAt(6, 1, 1500, udpFrame(53)[:16]), Reason: reasonOf(bpfobj.PipelineReasonDROP_FILTER)}
	none := &Packet{ID: 9, In: frameAt(6, 1, 1500, ""), Reason: reasonOf(bpfobj.PipelineReasonDROP_FILTER)}
	packets := []*Packet{samplePackets()[0], odd, odd, cut, none, odd, samplePackets()[1]}
	s := &sink{in: true, out: true, lines: l}
	queue := make(chan *Packet, 100)
	for _, p := range packets {
		queue <- p
	}
	close(queue)
	if err := s.print(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	if err := s.close(0); err != nil {
		t.Fatal(err)
	}
	var heads, more []string
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if m := oneLine.FindStringSubmatch(line); m != nil {
			heads = append(heads, strings.Join(m[1:], "|"))
			more = append(more, "")
			continue
		}
		if len(heads) == 0 || !strings.HasPrefix(line, "\t0x") {
			t.Fatalf("line %q in\n%s", line, out.String())
		}
		more[len(more)-1] += line
	}
	want := []string{
		`000000001|eth4|In |IP 192.0.2.1.1000 > 192.0.2.2.53: .*|fwd route|1`,
		`999999999|eth5|Out|IP 192.0.2.1.1000 > 192.0.2.2.54: UDP, length 4|fwd route|1`,
		`000000005|eth1|In |.*Unknown \(0x88b5\), length 64:.*|pass other|2`,
		`000000005|eth1|In |.*Unknown \(0x88b5\), length 64:.*|pass other|3`,
		`000000006|eth1|In |.*\[\|ip\].*|drop filter|4`,
		`000000006|eth1|In |.*caplen==0.*|drop filter|5`,
		`000000005|eth1|In |.*Unknown \(0x88b5\), length 64:.*|pass other|6`,
		`123456789|eth4|In |IP 192.0.2.1.1000 > 192.0.2.2.55: UDP, length 4|drop filter|7`,
	}
	if len(heads) != len(want) {
		t.Fatalf("%d frames in\n%s", len(heads), out.String())
	}
	for n, w := range want {
		w = strings.NewReplacer("||", "|").Replace(w)
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(strings.ReplaceAll(w, `[\|`, `[\x7c`), "|", `\|`) + "$")
		if !pattern.MatchString(heads[n]) {
			t.Errorf("frame %d: %s, want %s", n, heads[n], w)
		}
		if several := strings.Contains(w, "Unknown"); several != (more[n] != "") || several && !strings.Contains(more[n], "odd") && !strings.Contains(more[n], "6f64 64") {
			t.Errorf("frame %d has the further lines %q", n, more[n])
		}
	}
}

// TestLinesWhileTcpdumpEnds has a tcpdump that is gone. The error says so.
func TestLinesWhileTcpdumpEnds(t *testing.T) {
	d, err := startTcpdump(128)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := d.describe(frameAt(1, 1, 64, oddFrame()))
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "tcpdump") {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
}

// TestLinesWithoutTcpdump has no tcpdump on PATH.
func TestLinesWithoutTcpdump(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out strings.Builder
	l := newLines(newOutput(&out), 128, sampleNames)
	v6 := "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x86\xdd\x60\x00\x00\x00\x00\x00\x3b\x40" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"
	p := &Packet{Reason: reasonOf(bpfobj.PipelineReasonPASS_OTHER)}
	for n, f := range []*Frame{frameAt(1, 1, 46, udpFrame(53)), frameAt(2, 2, 54, v6), frameAt(3, 3, 64, oddFrame()), frameAt(4, 4, 64, "short"), frameAt(5, 5, 64, "")} {
		if err := l.frame(p, f, "In", n+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.decode.Close(); err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	want := []string{
		"192.0.2.1.1000 > 192.0.2.2.53: UDP, length 46", "2001:db8::1 > 2001:db8::2: IPv6, length 54",
		"02:00:00:00:00:02 > 02:00:00:00:00:01: ", "length 64", "length 64",
	}
	if len(all) != len(want) {
		t.Fatalf("got\n%s", out.String())
	}
	for n, w := range want {
		if !oneLine.MatchString(all[n]) || !strings.Contains(all[n], w) {
			t.Errorf("got %q, want %q", all[n], w)
		}
	}
}

// brokenWriter fails after some writes.
type brokenWriter struct{ left int }

var errBroken = errors.New("broken")

func (w *brokenWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errBroken
	}
	return len(b), nil
}

// TestSinkFails writes to what takes no more.
func TestSinkFails(t *testing.T) {
	for name, s := range map[string]*sink{
		"lines":  {in: true, out: true, lines: &lines{out: newOutput(&brokenWriter{2}), names: sampleNames, decode: plainDecoder{}}},
		"pcapng": {in: true, out: true, name: "the file", pcapng: newPcapng(newOutput(&brokenWriter{2}), "", 128, sampleNames)},
	} {
		queue, done := make(chan *Packet), make(chan error, 1)
		go func() { done <- s.consume(context.Background(), queue) }()
		for failed := false; !failed; {
			select {
			case queue <- samplePackets()[0]:
			case err := <-done:
				failed = true
				if !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "writing packets") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// TestSinkKeepsFile refuses a capture: a file that was there keeps what it has, and one that was not is not there afterwards.
func TestSinkKeepsFile(t *testing.T) {
	dir := t.TempDir()
	there, missing := dir+"/there", dir+"/missing"
	if err := os.WriteFile(there, []byte("before"), 0o640); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *sink {
		s, err := (&Options{Write: path, In: true, Snap: 128}).open()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	open(there).drop()
	open(missing).drop()
	if text, err := os.ReadFile(there); string(text) != "before" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other file: %v", err)
	}
	for _, path := range []string{there, missing, "/dev/null"} {
		s := open(path)
		if err := errors.Join(s.begin(nil), s.close(0)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(there); err != nil || strings.Contains(string(text), "before") {
		t.Errorf("the file has %q, %v", text, err)
	}
	if about, err := os.Stat(there); err != nil || about.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", about.Mode(), err)
	}
	if _, err := (&Options{Write: dir + "/none/x"}).open(); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}
