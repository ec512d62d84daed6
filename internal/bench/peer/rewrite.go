// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/binary"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

// rewrite makes only those changes to SCION packets that every router has to make, without any checks. The difference to it
// is the part of culvert's cost that could be saved at best.
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
	// The same as culvert's: version 4, header of five words, don't fragment, TTL 64, UDP.
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, 17
	copy(ip[12:], scionOut.local.Addr().AsSlice())
	copy(ip[16:], scionOut.remote.Addr().AsSlice())
	binary.BigEndian.PutUint16(header[udpOverhead:], scionOut.local.Port())
	binary.BigEndian.PutUint16(header[udpOverhead+2:], scionOut.remote.Port())

	// change removes the addresses and ports of the old header from a one's complement sum, and adds those of the new one.
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

// wordSum adds 16-bit words in native byte order.
func wordSum(b []byte) (sum uint32) {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.NativeEndian.Uint16(b))
	}
	return sum
}

// bigToNative is the value of n's big-endian bytes in native byte order.
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
