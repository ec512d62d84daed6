// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// lines prints frames as tcpdump(8) does, each with its interface and the verdict on the packet.
type lines struct {
	out    *output
	names  func(index int) string
	decode decoder
}

// decoder describes a frame, in one line or several.
type decoder interface {
	describe(f *Frame) (string, error)
	io.Closer
}

func newLines(out *output, snap int, names func(int) string) *lines {
	l := &lines{out: out, names: names, decode: plainDecoder{}}
	if d, err := startTcpdump(snap); err == nil {
		l.decode = d
	}
	return l
}

// frame prints a frame of a packet. number is that of the packet. The verdict is at the end of the first line; tcpdump's further lines
// for the same frame follow it.
func (l *lines) frame(p *Packet, f *Frame, direction string, number int) error {
	text, err := l.decode.describe(f)
	if err != nil {
		return err
	}
	text, more, several := strings.Cut(text, "\n")
	if several {
		more = "\n" + more
	}
	return l.print("%s %s %-3s %s [%s #%d]%s\n", f.Time.Format("15:04:05.000000000"), l.names(f.Interface), direction, text, p.Words(), number, more)
}

// below prints lines further in, which belong to the packet above them.
func (l *lines) below(texts []string) error {
	for _, t := range texts {
		if err := l.print("    %s\n", t); err != nil {
			return err
		}
	}
	return nil
}

// print writes a line, or nothing of it.
func (l *lines) print(format string, args ...any) error {
	_, err := l.out.put(fmt.Appendf(nil, format, args...), nil)
	return err
}

// tcpdump is a tcpdump(8) that reads frames from a pipe and prints lines for each.
type tcpdump struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	buffer *bufio.Writer
	pcap   *pcapgo.Writer
	out    *bufio.Reader
	// seq is the time of the last frame, in seconds. tcpdump prints it in front of the first line of a frame.
	seq int64
}

func startTcpdump(snap int) (*tcpdump, error) {
	path, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, err
	}
	t := &tcpdump{cmd: exec.Command(path, "-nn", "-tt", "-l", "-r", "-")}
	// Ctrl-C is for culvert, which still has packets to print.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.out, t.buffer = bufio.NewReader(out), bufio.NewWriter(t.in)
	t.pcap = pcapgo.NewWriter(t.buffer)
	if err := t.pcap.WriteFileHeader(uint32(max(snap, len(endFrame))), layers.LinkTypeEthernet); err != nil {
		return nil, err
	}
	return t, t.cmd.Start()
}

// endFrame is a frame that tcpdump prints in one line. It follows each frame, because nothing else tells how many lines that one has.
var endFrame = []byte{0}

// describe returns tcpdump's lines for a frame.
func (t *tcpdump) describe(f *Frame) (string, error) {
	err := t.give(f.Data, f.Length)
	if err == nil {
		err = t.give(endFrame, len(endFrame))
	}
	if err == nil {
		err = t.buffer.Flush()
	}
	if err != nil {
		return "", fmt.Errorf("giving tcpdump a frame: %w", err)
	}
	first, end := t.stamp(t.seq-1), t.stamp(t.seq)
	var all strings.Builder
	for {
		line, err := t.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("reading what tcpdump prints: %w", err)
		}
		if strings.HasPrefix(line, end) {
			return strings.TrimSpace(strings.TrimPrefix(all.String(), first)), nil
		}
		all.WriteString(line)
	}
}

// give writes a frame to tcpdump, with a time that no other has.
func (t *tcpdump) give(data []byte, length int) error {
	t.seq++
	return t.pcap.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(t.seq, 0), CaptureLength: len(data), Length: length}, data)
}

// stamp returns a time as tcpdump prints it in front of a frame.
func (t *tcpdump) stamp(seq int64) string { return strconv.FormatInt(seq, 10) + ".000000 " }

// Close ends tcpdump.
func (t *tcpdump) Close() error {
	t.in.Close()
	_, _ = io.Copy(io.Discard, t.out)
	return t.cmd.Wait()
}

// plainDecoder describes frames where there is no tcpdump.
type plainDecoder struct{}

func (plainDecoder) Close() error { return nil }

func (plainDecoder) describe(f *Frame) (string, error) {
	p := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	var src, dst, what string
	if n := p.NetworkLayer(); n != nil {
		src, dst = n.NetworkFlow().Src().String(), n.NetworkFlow().Dst().String()
		what = n.LayerType().String()
	} else if e, ok := p.LinkLayer().(*layers.Ethernet); ok {
		src, dst, what = e.SrcMAC.String(), e.DstMAC.String(), e.EthernetType.String()
	}
	if t := p.TransportLayer(); t != nil {
		src += "." + t.TransportFlow().Src().String()
		dst += "." + t.TransportFlow().Dst().String()
		what = t.LayerType().String()
	}
	return fmt.Sprintf("%s > %s: %s, length %d", src, dst, what, f.Length), nil
}
