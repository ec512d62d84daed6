// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/datapath"
	"culvert/internal/version"
)

// pcapng writes packets as a pcapng file (draft-ietf-opsawg-pcapng). Each interface has a block of its own. A packet has a block for
// the frame that came in, and one for the frame that went out, with the same epb_packetid. Its verdict is in a comment and in
// epb_verdict, as the return code of an XDP program.
type pcapng struct {
	out     *output
	w       *pcapgo.NgWriter // writes to waiting; nil before the header
	numbers map[int]int      // of interfaces in the file, by index
	names   func(index int) string
	expr    string
	snap    int
	first   []int // indexes of interfaces that the file has from the start
	// waiting is what out has not got yet: whole packets, which end where ends say. packets is how many out has got.
	waiting bytes.Buffer
	ends    []int
	packets int64
	failed  error // that of out: nothing is written after it
}

func newPcapng(out *output, expr string, snap int, names func(int) string) *pcapng {
	return &pcapng{out: out, numbers: make(map[int]int), names: names, expr: expr, snap: snap}
}

// start writes the header with the first interfaces, of which a file has one at least. Others follow with their packets.
func (p *pcapng) start() error {
	if p.w != nil || p.failed != nil {
		return p.failed
	}
	if len(p.first) == 0 {
		p.first = []int{1}
	}
	for _, index := range p.first {
		if _, err := p.number(index); err != nil {
			return err
		}
	}
	return p.flush()
}

// number returns the number of an interface in the file, which gets a block for it if it has none.
func (p *pcapng) number(index int) (int, error) {
	if n, ok := p.numbers[index]; ok {
		return n, nil
	}
	about := pcapgo.NgInterface{
		Name: p.names(index), OS: runtime.GOOS, Filter: p.expr, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(p.snap), TimestampResolution: 9,
	}
	n := 0
	var err error
	if p.w == nil {
		p.w, err = pcapgo.NewNgWriterInterface(&p.waiting, about, pcapgo.NgWriterOptions{
			SectionInfo: pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "culvert " + version.Short()},
		})
	} else {
		n, err = p.w.AddInterface(about)
	}
	if err == nil {
		p.numbers[index] = n
	}
	return n, err
}

// Return codes of XDP programs (linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// xdpAction returns the return code of XDP programs for a verdict. A punt is a pass to the slow path.
func xdpAction(p *Packet) uint64 {
	switch p.Verdict() {
	case datapath.VerdictDrop:
		return xdpDrop
	case datapath.VerdictFwd:
		return xdpRedirect
	}
	return xdpPass
}

// write writes a frame of a packet.
func (p *pcapng) write(pkt *Packet, f *Frame, direction pcapgo.NgEpbFlag) error {
	n, err := p.number(f.Interface)
	if err != nil {
		return err
	}
	id := pkt.ID
	return p.w.WritePacketWithOptions(
		gopacket.CaptureInfo{Timestamp: f.Time, CaptureLength: len(f.Data), Length: f.Length, InterfaceIndex: n}, f.Data,
		pcapgo.NgPacketOptions{
			Comments: []string{pkt.Words()},
			Flags:    &pcapgo.NgEpbFlags{Direction: direction},
			PacketID: &id,
			Verdicts: []pcapgo.NgEpbVerdict{{Type: pcapgo.NgEpbVerdictTypeLinuxeBPFXDP, Data: binary.LittleEndian.AppendUint64(nil, xdpAction(pkt))}},
		})
}

// enough is how many bytes wait before they are written, if time does not press.
const enough = 32 << 10

// packet writes the frames of a packet: the one that came in, the one that went out, or both.
func (p *pcapng) packet(pkt *Packet, in, out bool) error {
	if in && pkt.In != nil {
		if err := p.write(pkt, pkt.In, pcapgo.NgEpbFlagDirectionInbound); err != nil {
			return err
		}
	}
	if out && pkt.Out != nil {
		if err := p.write(pkt, pkt.Out, pcapgo.NgEpbFlagDirectionOutbound); err != nil {
			return err
		}
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	p.ends = append(p.ends, p.waiting.Len())
	if p.waiting.Len() < enough {
		return nil
	}
	return p.flush()
}

// flush writes what waits.
func (p *pcapng) flush() error {
	if p.w == nil || p.failed != nil {
		return p.failed
	}
	if err := p.w.Flush(); err != nil || p.waiting.Len() == 0 {
		return err
	}
	whole, err := p.out.put(p.waiting.Bytes(), p.ends)
	p.packets += int64(whole)
	p.failed = err
	p.waiting.Reset()
	p.ends = p.ends[:0]
	return err
}

// end writes what waits, and the losses.
func (p *pcapng) end(lost uint64) error {
	if err := p.start(); err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: time.Now(), PacketsReceived: uint64(p.packets) + lost, PacketsDropped: lost,
	}); err != nil {
		return err
	}
	return p.flush()
}
