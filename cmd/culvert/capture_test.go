// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
)

// TestCaptureUsage has wrong flags, and what no data plane can do.
func TestCaptureUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-s 0", "-s 0: a capture can show 1 to 65000 bytes of a frame"},
		{"-s 65001", "-s 65001: a capture can show"},
		{"-s much", `invalid argument "much" for "-s, --snap" flag: write a whole number`},
		{"-n -1", "-n -1: give the number of packets"},
		{"--sample 0", "--sample 0: give N to show one of N packets"},
		{"-i a -i b -i c -i d -i e -i f -i g -i h -i i", "-i 9 times: a capture can be limited to 8 interfaces"},
		{"--verdict no", "--verdict no: there are pass, punt, drop, fwd"},
		{"--reason no", "--reason no: there is no such reason: 'man culvert-reasons' has all, as have docs/filter.md, "},
		{"--reason filter-limmit", "--reason filter-limmit: there is no such reason (did you mean filter-limit?): "},
		{"--reason filter --stage route", "--reason filter with --stage route: no packet has both: the reason is of the stage filter"},
		{"--reason filter --verdict fwd", "--reason filter with --verdict fwd: no packet has both: the verdict is drop there"},
		{"--reason scion-mac --verdict pass", "--reason scion-mac with --verdict pass: no packet has both: the verdict is punt or drop there"},
		{"--stage filter --verdict punt", "--stage filter with --verdict punt: no packet has both: the verdict is drop or fwd there"},
		{"--out --verdict punt", "--out: packets with --verdict punt have no frame that goes out"},
		{"--out --reason filter", "--out: packets with --reason filter have no frame that goes out"},
		{"--stage no", "--stage no: there are core, "},
		{"--trace -w x", "--trace with -w: "},
		{"--trace --out", "--trace with --out: "},
		{"-j", "culvert capture prints no JSON"},
		{"--interfaces a", "unknown flag: --interfaces"},
		{"-w", "flag needs an argument"},
	} {
		status, out, errs := culvert(t, append([]string{"capture"}, strings.Fields(tt.args)...)...)
		if status != 2 || out != "" || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("capture %s: status %d, stdout %q, stderr %q; want status 2 and one line with %q", tt.args, status, out, errs, tt.want)
		}
	}
}

// captureBed is a filter bed with a data plane that drops ICMP. Its peer sends frames all the time.
type captureBed struct {
	*filterBed
	sent atomic.Uint64
}

func newCaptureBed(t *testing.T) *captureBed {
	b := &captureBed{filterBed: newFilterBed(t)}
	config := b.file("c.toml", "interfaces = [\"ft0\"]\n[filter]\n[[filter.rule]]\nname = \"no\"\naction = \"drop\"\nexpression = \"icmp\"\n")
	b.expect(0, "culvert attached to ft0", "attach", "-c", config, "ft0")
	done, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		frame := make([]byte, 1400)
		copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x05\x6a\x00\x00\x00\x00\x40\x01\x00\x00\xc0\x00\x02\x01\xc0\x00\x02\x02")
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Microsecond):
				_ = unix.Sendto(b.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.peer.Index}) // the interface may be gone
				b.sent.Add(1)
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	return b
}

// uncaptured wants that nothing of a capture is left.
func (b *captureBed) uncaptured() {
	b.t.Helper()
	inst, err := datapath.OpenHere("culvert")
	must(err)
	defer inst.Close()
	f, done, err := inst.Front("capture")
	must(err)
	defer done()
	if f.State != nil || f.Prog != nil {
		b.t.Error("the programs of a capture are still there")
	}
}

const captureBegins = "culvert: capturing on "

// refused runs a capture that cannot be, and wants one line.
func (b *captureBed) refused(want string, args ...string) {
	b.t.Helper()
	status, out, errs := culvert(b.t, append([]string{"capture"}, args...)...)
	if status != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
		b.t.Errorf("capture %q: status %d, stdout %q, stderr %q; want status 1 and one line with %q", args, status, out, errs, want)
	}
	b.uncaptured()
}

var captured = regexp.MustCompile(`(?m)^culvert: (\d+) packets? captured, \d+ records? lost$`)

// TestCapture prints packets, and writes them to a file. SIGINT ends a capture with the count.
func TestCapture(t *testing.T) {
	b := newCaptureBed(t)
	b.refused("capturing on none: there is no such interface in this network namespace", "-i", "none")
	b.refused("capturing on lo: the data plane is not attached to it, but to ft0", "-i", "ft0", "-i", "lo")
	b.refused(`compile "udp and frob": libpcap: `, "udp", "and", "frob")
	b.refused("no such file or directory", "-w", b.dir+"/none/x")
	status, out, errs := culvert(t, "capture", "-n", "5", "icmp")
	if status != 0 || strings.Count(out, "[drop filter #") != 5 || strings.Count(out, "\n") != 5 || !strings.Contains(out, " ft0 In ") || !strings.HasPrefix(errs, captureBegins) {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	b.uncaptured()
	file := b.dir + "/x.pcapng"
	run := startCulvert(t, "capture", "-w", file, "-s", "60", "--verdict", "drop")
	run.waitFor(t, captureBegins)
	b.wait("packets are in the file", func() bool { s, err := os.Stat(file); return err == nil && s.Size() > 20_000 })
	b.refusedBeside("captures on data plane ", file)
	run.interrupt(t)
	m := captured.FindStringSubmatch(run.errs.String())
	if m == nil || strings.Count(run.errs.String(), "\n") != 2 {
		t.Fatalf("stderr %q", run.errs.String())
	}
	f, err := os.Open(file)
	must(err)
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	must(err)
	n := 0
	for ; ; n++ {
		_, ci, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		must(err)
		if ci.CaptureLength != 60 || ci.Length != 1400 {
			t.Fatalf("got %+v", ci)
		}
	}
	if m[1] != fmt.Sprint(n) {
		t.Errorf("%d packets in the file, said were %s", n, m[1])
	}
	b.uncaptured()
	// What the filter does not match is not shown; nor is another verdict.
	status, out, _ = culvert(t, "capture", "-n", "1", "--reason", "filter", "--in", "--sample", "3")
	if status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d, stdout %q", status, out)
	}
	run = startCulvert(t, "capture", "--verdict", "fwd")
	run.waitFor(t, captureBegins)
	if got := run.interrupt(t); got != "" || !strings.Contains(run.errs.String(), "\nculvert: 0 packets captured, ") {
		t.Errorf("stdout %q, stderr %q", got, run.errs.String())
	}
}

// refusedBeside wants a second capture to be refused, which leaves a file as it is.
func (b *captureBed) refusedBeside(want, running string) {
	b.t.Helper()
	mine := b.file("mine", "precious")
	status, out, errs := culvert(b.t, "capture", "-w", mine)
	if status != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
		b.t.Errorf("a second capture: status %d, stdout %q, stderr %q", status, out, errs)
	}
	if text, err := os.ReadFile(mine); string(text) != "precious" {
		b.t.Errorf("it has overwritten its file: %q, %v", text, err)
	}
	before, err := os.Stat(running)
	must(err)
	b.wait("the first capture goes on", func() bool { s, err := os.Stat(running); must(err); return s.Size() > before.Size() })
}

func (b *captureBed) wait(what string, until func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); !until(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("it does not come true: %s", what)
		}
	}
}

// givesUp waits for a capture to end by itself, and wants a status, and an error of one line behind the others.
func (r *running) givesUp(t *testing.T, status int, want string) {
	t.Helper()
	lines := r.byItself(t)
	if r.cmd.ProcessState.ExitCode() != status || len(lines) != 3 || !captured.MatchString(lines[1]) || !strings.HasPrefix(lines[2], "culvert: ") || !strings.Contains(lines[2], want) {
		t.Errorf("status %d, stderr %q; want status %d and, in the last of three lines, %q", r.cmd.ProcessState.ExitCode(), r.errs.String(), status, want)
	}
}

// endsWell waits for a capture to end by itself, and wants that its count is the last that it says.
func (r *running) endsWell(t *testing.T) {
	t.Helper()
	lines := r.byItself(t)
	if r.cmd.ProcessState.ExitCode() != 0 || len(lines) != 2 || !captured.MatchString(lines[1]) {
		t.Errorf("status %d, stderr %q; want status 0 and two lines", r.cmd.ProcessState.ExitCode(), r.errs.String())
	}
}

// byItself waits for a capture to end by itself, and returns what it has said.
func (r *running) byItself(t *testing.T) []string {
	t.Helper()
	done := make(chan bool)
	go func() { _ = r.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT)
		<-done
		t.Fatalf("it does not end: %.3000s", r.errs.String())
	}
	return strings.Split(strings.TrimSuffix(r.errs.String(), "\n"), "\n")
}

// fileOf reads a file of a capture, which ends with a whole block, and returns how many packets it has.
func fileOf(t *testing.T, path string) (packets int) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(err)
	for rest := text; len(rest) > 0; {
		if len(rest) < 12 {
			t.Fatalf("%s ends within a block: %x", path, rest)
		}
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		if n < 12 || n > len(rest) {
			t.Fatalf("%s ends within a block: of %d bytes %d are there", path, n, len(rest))
		}
		rest = rest[n:]
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(text), pcapgo.DefaultNgReaderOptions)
	must(err)
	for ; ; packets++ {
		if _, _, err := r.ReadPacketData(); err != nil {
			if err != io.EOF {
				t.Errorf("%s: %v", path, err)
			}
			return packets
		}
	}
}

// TestCaptureFullDisk writes to file systems that have no more room. Without any the capture does not begin. With some, it ends as soon as
// that is full, and says how many packets are in the file.
func TestCaptureFullDisk(t *testing.T) {
	b := newCaptureBed(t)
	dir := filepath.Join(b.dir, "full")
	must(os.Mkdir(dir, 0o700))
	must(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"))
	defer func() { must(unix.Unmount(dir, 0)) }()
	for _, args := range [][]string{{"-w", dir + "/x"}, {"-w", dir + "/y", "-s", "60"}} {
		run := startCulvert(t, append([]string{"capture"}, args...)...)
		run.givesUp(t, 1, args[1]+": no space left on device")
		b.uncaptured()
		m := captured.FindStringSubmatch(run.errs.String())
		if n := fileOf(t, args[1]); m == nil || n == 0 || m[1] != fmt.Sprint(n) {
			t.Errorf("%d packets in the file, said were %q", n, m)
		}
		must(os.Truncate(args[1], 0))
	}
	rest, err := os.Create(dir + "/rest")
	must(err)
	must(unix.Fallocate(int(rest.Fd()), 0, 0, 16<<10))
	must(rest.Close())
	b.refused("writing packets to "+dir+"/z: no space left on device", "-w", dir+"/z", "udp")
	if _, err := os.Stat(dir + "/z"); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
	b.refused("writing packets to /dev/full: no space left on device", "-w", "/dev/full", "udp")
	// One that waits for packets has its header.
	file := b.dir + "/quiet"
	run := startCulvert(t, "capture", "-w", file, "udp")
	run.waitFor(t, captureBegins)
	if n := fileOf(t, file); n != 0 {
		t.Errorf("%d packets that nobody has sent", n)
	}
	run.interrupt(t)
}

// piped starts a capture whose standard output is a pipe, of which nobody reads yet.
func (b *captureBed) piped(args ...string) (*running, *os.File) {
	b.t.Helper()
	r := &running{cmd: exec.Command(os.Args[0], append([]string{"capture"}, args...)...)}
	r.cmd.Env = append(os.Environ(), asCulvert+"=1")
	from, to, err := os.Pipe()
	must(err)
	r.cmd.Stdout, r.cmd.Stderr = to, tell{r, &r.errs}
	must(r.cmd.Start())
	to.Close()
	b.t.Cleanup(func() {
		from.Close()
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	r.waitFor(b.t, captureBegins)
	return r, from
}

// full waits until a pipe takes no more of a capture, although many packets come.
func (b *captureBed) full(pipe *os.File) {
	b.t.Helper()
	size, since := 0, uint64(0)
	b.wait("the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		must(err)
		if n != size || n < 50_000 {
			size, since = n, b.sent.Load()
		}
		return b.sent.Load() > since+300
	})
}

// TestCaptureReaders has readers of a pipe that close it, and that stop reading. The capture ends, and the data plane is as before.
func TestCaptureReaders(t *testing.T) {
	b := newCaptureBed(t)
	for _, args := range [][]string{{"-w", "-"}, nil} {
		run, from := b.piped(args...)
		buf := make([]byte, 100)
		_, err := io.ReadFull(from, buf)
		must(err)
		from.Close()
		run.endsWell(t)
		b.uncaptured()

		run, from = b.piped(append(args, "udp")...) // nothing matches
		from.Close()
		run.endsWell(t)
		b.uncaptured()

		run, from = b.piped(args...)
		_, err = io.ReadFull(from, buf)
		must(err)
		b.full(from)
		must(run.cmd.Process.Signal(os.Interrupt))
		run.givesUp(t, 1, "the reader takes none")
		b.uncaptured()
	}
	// One that goes on reads all.
	run, from := b.piped("-n", "50", "-w", "-")
	var all bytes.Buffer
	_, err := all.ReadFrom(from)
	must(err)
	if err := run.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, run.errs.String())
	}
	r, err := pcapgo.NewNgReader(&all, pcapgo.DefaultNgReaderOptions)
	must(err)
	n := 0
	for ; ; n++ {
		if _, _, err := r.ReadPacketData(); err != nil {
			break
		}
	}
	if n != 50 {
		t.Errorf("%d packets, want 50", n)
	}
}

// TestCaptureInterrupted has Ctrl-C, which goes to all processes of the terminal's group, while tcpdump prints.
func TestCaptureInterrupted(t *testing.T) {
	newCaptureBed(t)
	r := &running{cmd: exec.Command(os.Args[0], "capture")}
	r.cmd.Env = append(os.Environ(), asCulvert+"=1")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r.cmd.Stdout, r.cmd.Stderr = tell{r, &r.stdout}, tell{r, &r.errs}
	must(r.cmd.Start())
	r.waitFor(t, captureBegins)
	for {
		r.mu.Lock()
		n := r.stdout.Len()
		r.mu.Unlock()
		if n > 1000 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	must(syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT))
	if err := r.cmd.Wait(); err != nil || strings.Count(r.errs.String(), "\n") != 2 || !captured.MatchString(r.errs.String()) {
		t.Errorf("%v: %q", err, r.errs.String())
	}
}

// TestCaptureOfWhatGoes kills a capture, deletes the interface of another, and detaches the data plane of a third.
func TestCaptureOfWhatGoes(t *testing.T) {
	b := newCaptureBed(t)
	run := startCulvert(t, "capture", "-i", "ft0")
	run.waitFor(t, captureBegins)
	must(run.cmd.Process.Kill())
	_ = run.cmd.Wait()
	if status, out, errs := culvert(t, "capture", "-n", "1"); status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
	b.uncaptured()
	run = startCulvert(t, "capture", "udp")
	run.waitFor(t, captureBegins)
	b.expect(0, "", "detach", "--all")
	run.givesUp(t, 1, "the data plane was detached: the capture has ended")
	b.expect(0, "culvert attached to ft0", "attach", "-c", b.file("c.toml", "interfaces = [\"ft0\"]\n[filter]\n"), "ft0")
	run = startCulvert(t, "capture", "-i", "ft0")
	run.waitFor(t, captureBegins)
	l, err := netlink.LinkByName("ft0")
	must(err)
	must(netlink.LinkDel(l))
	b.wait("the interface is gone", func() bool { _, err := netlink.LinkByName("ft0"); return err != nil })
	run.interrupt(t)
	if !captured.MatchString(run.errs.String()) || strings.Count(run.errs.String(), "\n") != 2 {
		t.Errorf("stderr %q", run.errs.String())
	}
}
