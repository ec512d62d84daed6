// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

func reasonOf(n bpfobj.PipelineReason) datapath.Reason { return datapath.Reasons()[n.Index()] }

func frameAt(ns, iface, length int, data string) *Frame {
	return &Frame{Time: time.Unix(1_700_000_000, int64(ns)), Interface: iface, Length: length, Data: []byte(data)}
}

// udpFrame is an Ethernet frame with a UDP packet to a port.
func udpFrame(port uint16) string {
	f, _ := hex.DecodeString("020000000002020000000001080045000020000000004011000" + "0c0000201c0000202" + "03e8")
	f = binary.BigEndian.AppendUint16(f, port)
	return string(append(f, 0, 12, 0, 0, 'd', 'a', 't', 'a'))
}

// samplePackets are a forwarded packet, one that was dropped, and one that is shown as it goes out only.
func samplePackets() []*Packet {
	return []*Packet{
		{ID: 0x10001, In: frameAt(1, 4, 46, udpFrame(53)), Out: frameAt(999_999_999, 5, 60, udpFrame(54)), Reason: reasonOf(bpfobj.PipelineReasonFWD_ROUTE)},
		{ID: 0x10002, In: frameAt(123_456_789, 4, 9000, udpFrame(55)), Reason: reasonOf(bpfobj.PipelineReasonDROP_FILTER)},
		{ID: 0x20001, Out: frameAt(7, 4, 46, udpFrame(56)), Reason: reasonOf(bpfobj.PipelineReasonFWD_ROUTE)},
		{ID: 0x20002, In: frameAt(8, 6, 46, udpFrame(57)), Reason: reasonOf(bpfobj.PipelineReasonPUNT_SCION_MAC), Limited: true},
		{ID: 0x20003, In: frameAt(9, 6, 46, udpFrame(58)), Reason: reasonOf(bpfobj.PipelineReasonPASS_OTHER)},
	}
}

func sampleNames(index int) string { return fmt.Sprint("eth", index) }

// writeSample writes the packets as a sink does.
func writeSample(t *testing.T, to io.Writer, packets []*Packet, lost uint64) {
	t.Helper()
	s := &sink{in: true, out: true, name: "x", to: newOutput(to), pcapng: newPcapng(newOutput(to), "udp or tcp", 128, sampleNames)}
	s.pcapng.first = []int{4}
	queue := make(chan *Packet, len(packets))
	for _, p := range packets {
		queue <- p
	}
	close(queue)
	if err := s.consume(context.Background(), queue); err != nil {
		t.Fatal(err)
	}
	if err := s.close(lost); err != nil {
		t.Fatal(err)
	}
}

// TestPcapng reads back what was written.
func TestPcapng(t *testing.T) {
	var file bytes.Buffer
	packets := samplePackets()
	writeSample(t, &file, packets, 3)
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	type want struct {
		p         *Packet
		f         *Frame
		direction pcapgo.NgEpbFlag
		verdict   uint64
		comment   string
	}
	in, out := pcapgo.NgEpbFlag(pcapgo.NgEpbFlagDirectionInbound), pcapgo.NgEpbFlag(pcapgo.NgEpbFlagDirectionOutbound)
	for n, w := range []want{
		{packets[0], packets[0].In, in, 4, "fwd route"},
		{packets[0], packets[0].Out, out, 4, "fwd route"},
		{packets[1], packets[1].In, in, 1, "drop filter"},
		{packets[2], packets[2].Out, out, 4, "fwd route"},
		{packets[3], packets[3].In, in, 1, "drop scion-mac, a punt over its rate"},
		{packets[4], packets[4].In, in, 2, "pass other"},
	} {
		data, ci, o, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatalf("block %d: %v", n, err)
		}
		if string(data) != string(w.f.Data) || ci.Length != w.f.Length || !ci.Timestamp.Equal(w.f.Time) {
			t.Errorf("block %d: %x, %+v, want %+v", n, data, ci, w.f)
		}
		about, err := r.Interface(ci.InterfaceIndex)
		if err != nil || about.Name != sampleNames(w.f.Interface) || about.LinkType != layers.LinkTypeEthernet || about.SnapLength != 128 ||
			about.Filter != "udp or tcp" || about.TimestampResolution != 9 {
			t.Errorf("block %d is of %+v, %v", n, about, err)
		}
		if len(o.Comments) != 1 || o.Comments[0] != w.comment || o.Flags == nil || o.Flags.Direction != w.direction || o.PacketID == nil || *o.PacketID != w.p.ID {
			t.Errorf("block %d has %+v", n, o)
		}
		if len(o.Verdicts) != 1 || o.Verdicts[0].Type != pcapgo.NgEpbVerdictTypeLinuxeBPFXDP || binary.LittleEndian.Uint64(o.Verdicts[0].Data) != w.verdict {
			t.Errorf("block %d has the verdict %+v, want %d", n, o.Verdicts, w.verdict)
		}
	}
	if _, _, _, err := r.ReadPacketDataWithOptions(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if n := r.NInterfaces(); n != 3 {
		t.Errorf("%d interfaces, want 3", n)
	}
	about, err := r.Interface(0)
	if err != nil || about.Statistics.PacketsReceived != 8 || about.Statistics.PacketsDropped != 3 {
		t.Errorf("statistics %+v, %v", about.Statistics, err)
	}
	if d := time.Since(about.Statistics.LastUpdate); d < 0 || d > time.Hour {
		t.Errorf("statistics of %v", about.Statistics.LastUpdate)
	}
	if info := r.SectionInfo(); !strings.HasPrefix(info.Application, "culvert ") {
		t.Errorf("section %+v", info)
	}
}

// TestPcapngEmpty writes a file of a capture without packets, which readers accept.
func TestPcapngEmpty(t *testing.T) {
	var file bytes.Buffer
	writeSample(t, &file, nil, 0)
	r, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if got := tshark(t, &file, "-r", "-"); got != "" {
		t.Errorf("tshark prints %q", got)
	}
}

// fullWriter has room for so many bytes, and keeps them.
type fullWriter struct {
	room int
	got  bytes.Buffer
}

func (w *fullWriter) Write(b []byte) (int, error) {
	n, _ := w.got.Write(b[:min(len(b), w.room-w.got.Len())])
	if n < len(b) {
		return n, errBroken
	}
	return n, nil
}

// TestPcapngCount writes to what has room for less, of any size: as many packets are counted as are wholly there.
func TestPcapngCount(t *testing.T) {
	var whole bytes.Buffer
	writeSample(t, &whole, samplePackets(), 0)
	for room := range whole.Len() {
		w := &fullWriter{room: room}
		s := &sink{in: true, out: true, name: "x", pcapng: newPcapng(newOutput(w), "udp or tcp", 128, sampleNames)}
		s.pcapng.first = []int{4}
		queue := make(chan *Packet, 10)
		for _, p := range samplePackets() {
			queue <- p
		}
		close(queue)
		err := s.consume(context.Background(), queue)
		if closeErr := s.close(0); !errors.Is(closeErr, errBroken) || err != nil && !errors.Is(err, errBroken) {
			t.Fatalf("room for %d bytes: %v, %v", room, err, closeErr)
		}
		ids := make(map[uint64]int)
		if r, err := pcapgo.NewNgReader(&w.got, pcapgo.DefaultNgReaderOptions); err == nil {
			for {
				_, _, o, err := r.ReadPacketDataWithOptions()
				if err != nil {
					break
				}
				ids[*o.PacketID]++
			}
		}
		if ids[samplePackets()[0].ID] == 1 { // it has two frames
			delete(ids, samplePackets()[0].ID)
		}
		if got := s.written.Load(); got != int64(len(ids)) {
			t.Errorf("room for %d bytes: %d packets counted, %d are there", room, got, len(ids))
		}
	}
}

// tshark runs tshark and returns its lines. A missing tshark is an error: scripts/deps.sh installs it.
func tshark(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.Stdin, cmd.Stderr = stdin, &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %v: %v: %s", args, err, &errs)
	}
	return string(out)
}

// TestTshark has Wireshark's reader print a file and what comes through a pipe.
func TestTshark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcapng")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	writeSample(t, f, samplePackets(), 0)
	f.Close()
	fields := []string{"-n", "-T", "fields", "-E", "separator=|"}
	for _, name := range []string{"frame.interface_name", "frame.comment", "frame.packet_flags_direction", "frame.time_epoch", "frame.len", "frame.cap_len", "udp.dstport", "frame.packet_id", "frame.verdict.ebpf_xdp"} {
		fields = append(fields, "-e", name)
	}
	const want = `eth4|fwd route|0x00000001|1700000000.000000001|46|46|53|65537|4
eth5|fwd route|0x00000002|1700000000.999999999|60|46|54|65537|4
eth4|drop filter|0x00000001|1700000000.123456789|9000|46|55|65538|1
eth4|fwd route|0x00000002|1700000000.000000007|46|46|56|131073|4
eth6|drop scion-mac, a punt over its rate|0x00000001|1700000000.000000008|46|46|57|131074|1
eth6|pass other|0x00000001|1700000000.000000009|46|46|58|131075|2
`
	if got := tshark(t, nil, append(fields, "-r", path)...); got != want {
		t.Errorf("of a file:\n%s\nwant\n%s", got, want)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer w.Close(); writeSample(t, w, samplePackets(), 0) }()
	if got := tshark(t, r, append(fields, "-r", "-")...); got != want {
		t.Errorf("of a pipe:\n%s\nwant\n%s", got, want)
	}
}
