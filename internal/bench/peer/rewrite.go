// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/binary"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

// rewrite does to SCION packets what no router can leave undone, and nothing else: it tells how much of culvert's
// cost could be saved at all.
type rewrite struct {
	traffic SCIONTraffic
	on      *load.Attachment
}

func (d *rewrite) Attach(_ context.Context, p Path) (err error) {
	const (
		udpOverhead = scionpkt.EthernetLen + scionpkt.IPv4Len
	)
	var header [48]byte
	copy(header[0:], p.Sink.MAC)
	copy(header[6:], p.Out.MAC)
	binary.BigEndian.PutUint16(header[12:], 0x0800)
	ip := header[scionpkt.EthernetLen:]
	// As culvert's: version 4, five words, not to be fragmented, 64 hops, UDP.
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, 17
	copy(ip[12:], scionOut.local.Addr().AsSlice())
	copy(ip[16:], scionOut.remote.Addr().AsSlice())
	binary.BigEndian.PutUint16(header[udpOverhead:], scionOut.local.Port())
	binary.BigEndian.PutUint16(header[udpOverhead+2:], scionOut.remote.Port())

	// What takes the addresses and ports of the old header out of a sum, and puts those of the new one in.
	change := wordSum(header[26:38])
	for _, old := range [][]byte{scionIn.remote.Addr().AsSlice(), scionIn.local.Addr().AsSlice()} {
		change += 2*0xffff - wordSum(old)
	}
	change += 2*0xffff - uint32(bigToNative(scionIn.remote.Port())) - uint32(bigToNative(scionIn.local.Port()))
	d.on, err = load.AttachBench(p.In, load.BenchProgBenchRewrite, map[string]any{
		load.BenchVarOutIfindex:    uint32(p.Out.Index),
		load.BenchVarRewriteHeader: header,
		load.BenchVarRewriteIpSum:  wordSum(header[scionpkt.EthernetLen:udpOverhead]),
		load.BenchVarRewriteL4Sum:  change,
	})
	return err
}

// wordSum adds 16-bit words as they stand in memory.
func wordSum(b []byte) (sum uint32) {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.NativeEndian.Uint16(b))
	}
	return sum
}

// bigToNative is how a number in network byte order reads in the machine's.
func bigToNative(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func (d *rewrite) Frames(p Path, common [][]byte) ([][]byte, error) {
	router, err := benchRouter()
	if err != nil {
		return nil, err
	}
	return d.traffic.frames(router, p, len(common))
}

func (*rewrite) Losses() (map[string]uint64, error) { return nil, nil }

func (d *rewrite) Program() (*ebpf.Program, uint32) { return d.on.Prog, load.XDPRedirect }

func (d *rewrite) Detach() error { return d.on.Close() }
