// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/onehop"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
)

// Reader notes the hop fields of packets from a socket. One goroutine at a time may use it.
type Reader struct {
	macs
	path scion.Raw
	hops []hopKey // of the packet
}

// Reader returns a reader of the ring.
func (r *Ring) Reader() *Reader { return &Reader{macs: macs{ring: r}} }

// Note notes the hop fields of a SCION packet that the reference will verify. It waits while packets with the same hop fields under
// another key are not verified yet. All packets before this one have to be with the reference.
func (r *Reader) Note(packet []byte) {
	r.read(packet)
	for begin := time.Now(); !r.ring.note(r.hops, false); time.Sleep(waitStep) {
		if time.Since(begin) >= longestWait || !r.ring.mayWait() {
			r.ring.note(r.hops, true)
			return
		}
	}
}

// Try is Note if that does not have to wait. Otherwise it returns false.
func (r *Reader) Try(packet []byte) bool {
	r.read(packet)
	return r.ring.note(r.hops, false)
}

// read sets hops: the current hop field, and behind it the first one of the next segment, each with its key. It finds none unless
// two keys are valid. Packets that do not decode are left to the reference.
func (r *Reader) read(packet []byte) {
	r.hops = r.hops[:0]
	if !r.ring.overlapping(r.ring.now()) || len(packet) < slayers.CmnHdrLen {
		return
	}
	const (
		headerLen, pathType, addrTypes = 5, 8, 9
		ias                            = 16
	)
	end := slayers.LineLen * int(packet[headerLen])
	at := slayers.CmnHdrLen + ias + slayers.AddrType(packet[addrTypes]>>4).Length() + slayers.AddrType(packet[addrTypes]&15).Length()
	if path.Type(packet[pathType]) == epic.PathType {
		at += epic.MetadataLen
	}
	if end > len(packet) || at > end {
		return
	}
	raw := packet[at:end]
	switch path.Type(packet[pathType]) {
	case scion.PathType, epic.PathType:
		if r.path.DecodeFromBytes(raw) == nil {
			r.addPath()
		}
	case onehop.PathType:
		var p onehop.Path
		if p.DecodeFromBytes(raw) == nil {
			r.addHop(p.Info, p.FirstHop)
		}
	}
}

func (r *Reader) addPath() {
	meta := r.path.PathMeta
	r.addAt(int(meta.CurrINF), int(meta.CurrHF))
	behind := 0
	for _, n := range meta.SegLen[:min(int(meta.CurrINF)+1, len(meta.SegLen))] {
		behind += int(n)
	}
	if next := int(meta.CurrHF) + 1; next == behind && next < r.path.NumHops {
		r.addAt(int(meta.CurrINF)+1, next)
	}
}

func (r *Reader) addAt(info, hop int) {
	i, err := r.path.GetInfoField(info)
	if err != nil {
		return
	}
	if h, err := r.path.GetHopField(hop); err == nil {
		r.addHop(i, h)
	}
}

// addHop adds a hop field with the key that it is valid under. Against the direction of construction the reference takes the
// MAC out of the SegID first, for packets from outside.
func (r *Reader) addHop(info path.InfoField, hop path.HopField) {
	var b block
	for _, segID := range []uint16{info.SegID, info.SegID ^ binary.BigEndian.Uint16(hop.Mac[:2])} {
		path.MACInput(segID, info.Timestamp, hop.ExpTime, hop.ConsIngress, hop.ConsEgress, b[:])
		now := r.ring.now()
		for i, k := range r.ring.keys {
			if near(k.Span, now) && bytes.Equal(r.sum(i, b[:], nil)[:path.MacLen], hop.Mac[:]) {
				r.hops = append(r.hops, hopKey{b, i})
				return
			}
		}
		if info.ConsDir {
			return
		}
	}
}
