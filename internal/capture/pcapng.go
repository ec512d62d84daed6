// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"io"
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
	out     io.Writer
	w       *pcapgo.NgWriter // nil before the first frame
	numbers map[int]int      // of interfaces in the file, by index
	names   func(index int) string
	expr    string
	snap    int
}

func newPcapng(out io.Writer, expr string, snap int, names func(int) string) *pcapng {
	return &pcapng{out: out, numbers: make(map[int]int), names: names, expr: expr, snap: snap}
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
		p.w, err = pcapgo.NewNgWriterInterface(p.out, about, pcapgo.NgWriterOptions{
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

// in writes the frame that came in.
func (p *pcapng) in(pkt *Packet) error { return p.write(pkt, pkt.In, pcapgo.NgEpbFlagDirectionInbound) }

// out writes the frame that went out.
func (p *pcapng) outgoing(pkt *Packet) error {
	return p.write(pkt, pkt.Out, pcapgo.NgEpbFlagDirectionOutbound)
}

// flush writes what is buffered, a file without packets if there was none.
func (p *pcapng) flush() error {
	if p.w == nil {
		return nil
	}
	return p.w.Flush()
}

// end writes the losses, and what is buffered.
func (p *pcapng) end(captured, lost uint64) error {
	if p.w == nil {
		if _, err := p.number(1); err != nil { // a file has one interface at least
			return err
		}
	}
	if err := p.w.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: time.Now(), PacketsReceived: captured + lost, PacketsDropped: lost,
	}); err != nil {
		return err
	}
	return p.w.Flush()
}
