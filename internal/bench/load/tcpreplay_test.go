// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"culvert/internal/testbed"
)

// The packets that tcpreplay reports arrive, whole and with valid checksums.
func TestTcpreplay(t *testing.T) {
	testbed.NeedRoot(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	from, to, sink := testSink(t, SinkOptions{Port: 9})
	frames, err := UDPFrames(7, 60, 138, 1514)
	if err != nil {
		t.Fatal(err)
	}
	var source Source
	source, err = NewSource("tcpreplay", GeneratorOptions{Frames: Addressed(frames, to.MAC, from.MAC), From: from, CPU: LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	before, err := from.Stats()
	if err != nil {
		t.Fatal(err)
	}
	const packets = 7 * 3000
	sent, err := source.Run(context.Background(), packets)
	if err != nil {
		t.Fatal(err)
	}
	const bytes = packets / 7 * (3*60 + 2*138 + 2*1514)
	if sent.Packets != packets || sent.Bytes != bytes || sent.Elapsed <= 0 {
		t.Errorf("sent %+v, want %d packets, %d bytes", sent, packets, bytes)
	}
	after, err := from.Stats()
	if err != nil {
		t.Fatal(err)
	}
	lost := after.SendDropped - before.SendDropped
	seen := settled(t, sink, packets-lost)
	if seen.Packets+lost != packets || lost == 0 && seen.Bytes != bytes {
		t.Errorf("seen %+v, %d lost", seen, lost)
	}
	source.Pace(10_000)
	paced, err := source.Run(context.Background(), 1000)
	if least := 95 * time.Millisecond; err != nil || paced.Packets != 1000 || paced.Elapsed < least {
		t.Errorf("paced: %+v, error %v", paced, err)
	}
	// An interrupted run ends at once.
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := source.Run(ctx, 1<<40); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
		t.Errorf("left %v, error %v", files, err)
	}
}

func TestTcpreplayRefusals(t *testing.T) {
	testbed.NeedRoot(t)
	from, _ := testWire(t, testNetns(t), testNetns(t), "cvg0", "cvg1")
	if _, err := NewTcpreplay(GeneratorOptions{Frames: taggedFrames(1, 60), From: from, Stamp: true}); err == nil {
		t.Error("stamps promised")
	}
	if _, err := NewTcpreplay(GeneratorOptions{From: from}); err == nil {
		t.Error("no frames taken")
	}
	if _, err := NewSource("trafgen", GeneratorOptions{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err := NewTcpreplay(GeneratorOptions{Frames: taggedFrames(1, 60), From: from})
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "Debian package tcpreplay") {
		t.Errorf("error %v", err)
	}
}

func TestParseTcpreplay(t *testing.T) {
	const text = `Actual: 100003 packets (6000180 bytes) sent in 0.452564 seconds
Rated: 13258191.1 Bps, 106.06 Mbps, 220969.85 pps
Statistics for network device: cva
	Successful packets:        100001
	Failed packets:            2
`
	got, ok := parseTcpreplay(text)
	if want := (Sent{Packets: 100001, Bytes: 6000180, Elapsed: 452564 * time.Microsecond}); !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, bad := range []string{"", "Fatal Error", strings.Split(text, "\n")[0]} {
		if _, ok := parseTcpreplay(bad); ok {
			t.Errorf("%q taken for statistics", bad)
		}
	}
}

func TestPcapFrames(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, frames [][]byte, change func([]byte) []byte) string {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(writeFrames(f, frames), f.Close()); err != nil {
			t.Fatal(err)
		}
		if change != nil {
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, change(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	want := taggedFrames(100, 60, 1514)
	got, err := ReadFrames(write("good", want, nil))
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d frames, error %v", len(got), err)
	}
	for i := range want {
		if string(got[i]) != string(want[i]) {
			t.Errorf("frame %d differs", i)
		}
	}
	const header, original = 24, 24 + 12
	for name, path := range map[string]string{
		"none":           filepath.Join(dir, "none"),
		"empty":          write("empty", nil, nil),
		"no pcap":        write("text", nil, func([]byte) []byte { return []byte("plain text, not a capture file") }),
		"no Ethernet":    write("raw", want, func(b []byte) []byte { b[20] = 101; return b }),
		"truncated":      write("short", want, func(b []byte) []byte { return b[:len(b)-1] }),
		"packets cut":    write("cut", want, func(b []byte) []byte { b[original]++; return b }),
		"header only":    write("header", want, func(b []byte) []byte { return b[:header-1] }),
		"nothing at all": write("zero", want, func([]byte) []byte { return nil }),
	} {
		if _, err := ReadFrames(path); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
