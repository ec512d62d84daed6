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

// Tcpreplay sends frames with tcpreplay(1), for comparison: from memory, through a packet socket.
type Tcpreplay struct {
	opts    GeneratorOptions
	program string
	// dir holds the pcap file.
	dir string
	// rate is in packets a second, 0 for as many as possible.
	rate float64
}

// NewTcpreplay writes a pcap file for tcpreplay. It also turns checksum offload of the device off: with it, frames from
// packet sockets carry offload marks, on which the device under test would act. It refuses o.Stamp. o.Header has no effect,
// because tcpreplay sends whole frames. Every run begins with the first frame.
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

// ChecksumOffloadOff turns checksum offload off for a device in the calling thread's namespace, so that the kernel computes
// all checksums of its packets itself.
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

// Pace implements Source.
func (t *Tcpreplay) Pace(packets float64) { t.rate = packets }

// Run implements Source. It begins with the first frame.
func (t *Tcpreplay) Run(ctx context.Context, packets uint64) (Sent, error) {
	speed := "--topspeed"
	if t.rate > 0 {
		speed = "--pps=" + strconv.FormatFloat(t.rate, 'f', -1, 64)
	}
	// tcpreplay counts packets in 32 bits, and 0 stands for no limit.
	const maxPackets = 1 << 31
	var total Sent
	for total.Packets < packets {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		limit := strconv.FormatUint(min(packets-total.Packets, maxPackets), 10)
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

// run runs tcpreplay once and reads what it sent from its output. When ctx ends, run interrupts it and still reads that.
func (t *Tcpreplay) run(ctx context.Context, args ...string) (sent Sent, err error) {
	const grace = 5 * time.Second
	var out []byte
	err = t.opts.From.Netns.Do(func() error {
		// The program inherits the CPU of the thread that starts it. The kernel kills it when that thread ends.
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
	sent, ok := parseTcpreplay(string(out))
	switch {
	case ctx.Err() != nil:
		return sent, ctx.Err()
	case err != nil:
		return sent, fmt.Errorf("tcpreplay on %s: %w: %s", t.opts.From.Name, err, lastLine(string(out)))
	case !ok:
		return sent, fmt.Errorf("tcpreplay on %s printed no statistics: %s", t.opts.From.Name, lastLine(string(out)))
	}
	return sent, nil
}

var (
	tcpreplayActual = regexp.MustCompile(`(?m)^Actual: (\d+) packets \((\d+) bytes\) sent in ([0-9.]+) seconds`)
	tcpreplayDone   = regexp.MustCompile(`(?m)^\s*Successful packets:\s+(\d+)`)
)

// parseTcpreplay reads the statistics that tcpreplay 4 prints when it ends. ok is false if there are none.
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

// lastLine is the last line of a text, without blank lines at the end.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Close removes the pcap file.
func (t *Tcpreplay) Close() error { return os.RemoveAll(t.dir) }
