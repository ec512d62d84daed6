// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// Tcpreplay sends frames with the program of that name, for comparison: from a packet socket, out of memory.
type Tcpreplay struct {
	opts    GeneratorOptions
	program string
	// dir holds the pcap file.
	dir  string
	rate float64
}

// NewTcpreplay writes a pcap file for tcpreplay and turns checksum offload of the device off, because frames from
// packet sockets carry marks of it that devices under test would heed. It writes no stamps and always whole frames:
// Stamp is refused, Header not heeded. Every run begins with the first frame.
func NewTcpreplay(o GeneratorOptions) (_ *Tcpreplay, err error) {
	if o.Stamp {
		return nil, errors.New("tcpreplay cannot stamp packets: use the kernel generator")
	}
	if _, err := newTable(o.Frames, 0); err != nil {
		return nil, err
	}
	t := &Tcpreplay{opts: o}
	if t.program, err = exec.LookPath("tcpreplay"); err != nil {
		return nil, fmt.Errorf("%w: install the Debian package tcpreplay", err)
	}
	if err := o.From.Netns.Do(func() error { return ChecksumOffloadOff(o.From.Name) }); err != nil {
		return nil, err
	}
	if t.dir, err = os.MkdirTemp("", "culvert-tcpreplay-*"); err != nil {
		return nil, fmt.Errorf("make a directory for tcpreplay: %w", err)
	}
	if err := t.write(); err != nil {
		return nil, errors.Join(fmt.Errorf("write frames for tcpreplay: %w", err), t.Close())
	}
	return t, nil
}

// ChecksumOffloadOff has a device of the calling thread's namespace finish checksums by itself.
func ChecksumOffloadOff(name string) error {
	for _, cmd := range []uint32{unix.ETHTOOL_SRXCSUM, unix.ETHTOOL_STXCSUM} {
		if _, err := netdev.Ethtool(name, cmd, 0); err != nil {
			return fmt.Errorf("turn checksum offload of %s off: %w", name, err)
		}
	}
	return nil
}

func (t *Tcpreplay) file() string { return filepath.Join(t.dir, "frames.pcap") }

func (t *Tcpreplay) write() error {
	f, err := os.Create(t.file())
	if err != nil {
		return err
	}
	return errors.Join(writeFrames(f, t.opts.Frames), f.Close())
}

// Pace sets how many packets a second the next runs send at most, 0 for as many as possible.
func (t *Tcpreplay) Pace(packets float64) { t.rate = packets }

// Run sends that many packets, starting at the first. It returns what was sent up to then when ctx ends.
func (t *Tcpreplay) Run(ctx context.Context, packets uint64) (Sent, error) {
	speed := "--topspeed"
	if t.rate > 0 {
		speed = "--pps=" + strconv.FormatFloat(t.rate, 'f', -1, 64)
	}
	// It counts in 32 bits, and takes 0 for no limit.
	const most = 1 << 31
	var total Sent
	for total.Packets < packets {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		limit := strconv.FormatUint(min(packets-total.Packets, most), 10)
		sent, err := t.run(ctx, "--preload-pcap", speed, "--loop=0", "--limit="+limit, "--intf1="+t.opts.From.Name, t.file())
		total.Packets += sent.Packets
		total.Bytes += sent.Bytes
		total.Elapsed += sent.Elapsed
		if err != nil {
			return total, err
		}
		if sent.Packets == 0 {
			return total, fmt.Errorf("tcpreplay on %s sent nothing: is the device up?", t.opts.From.Name)
		}
	}
	return total, nil
}

// run runs the program once. When ctx ends it is interrupted, and tells what it has sent.
func (t *Tcpreplay) run(ctx context.Context, args ...string) (sent Sent, err error) {
	const grace = 5 * time.Second
	var out []byte
	err = t.opts.From.Netns.Do(func() error {
		// The program inherits the CPU of the thread that starts it, and is ended with it.
		if err := Pin(t.opts.CPU); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, t.program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = grace
		var err error
		out, err = cmd.CombinedOutput()
		return err
	})
	sent, told := parseTcpreplay(string(out))
	switch {
	case ctx.Err() != nil:
		return sent, ctx.Err()
	case err != nil:
		return sent, fmt.Errorf("tcpreplay on %s: %w: %s", t.opts.From.Name, err, lastLine(string(out)))
	case !told:
		return sent, fmt.Errorf("tcpreplay on %s did not tell what it sent: %s", t.opts.From.Name, lastLine(string(out)))
	}
	return sent, nil
}

var (
	tcpreplayActual = regexp.MustCompile(`(?m)^Actual: (\d+) packets \((\d+) bytes\) sent in ([0-9.]+) seconds`)
	tcpreplayDone   = regexp.MustCompile(`(?m)^\s*Successful packets:\s+(\d+)`)
)

// parseTcpreplay reads the statistics that tcpreplay 4 prints at its end.
func parseTcpreplay(out string) (s Sent, ok bool) {
	actual, done := tcpreplayActual.FindStringSubmatch(out), tcpreplayDone.FindStringSubmatch(out)
	if actual == nil || done == nil {
		return s, false
	}
	packets, err1 := strconv.ParseUint(done[1], 10, 64)
	bytes, err2 := strconv.ParseUint(actual[2], 10, 64)
	seconds, err3 := strconv.ParseFloat(actual[3], 64)
	s = Sent{Packets: packets, Bytes: bytes, Elapsed: time.Duration(seconds * float64(time.Second))}
	return s, errors.Join(err1, err2, err3) == nil
}

// lastLine is the last line of a text that is not empty.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Close removes the pcap file.
func (t *Tcpreplay) Close() error { return os.RemoveAll(t.dir) }
