// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/bfd"

	"github.com/gopacket/gopacket"
)

// Plane is a data plane of the reference that runs.
type Plane struct {
	// Shutdown is the data plane's.
	Shutdown func()
	Config   scionrouter.RunConfig
	// Pool and Queues are what the data plane has given its underlay.
	Pool   scionrouter.PacketPool
	Queues []chan *scionrouter.Packet
	Taps   []*Tap
	// Moved are the links whose sessions have moved to another data plane.
	Moved []scionrouter.Link
}

// endWait bounds each step of End.
const endWait = 10 * time.Second

// End frees a data plane whose taps have retired and whose sessions send nothing any more. The reference's own Shutdown closes
// queues that other goroutines of it may still send to, which would end the process. So End waits until every packet is back in
// the pool: nothing is on its way then, and nothing can be, because nothing comes in. After an error the data plane stays in
// memory, idle.
func (p *Plane) End() error {
	end := time.NewTimer(endWait)
	defer end.Stop()
	for _, t := range p.Taps {
		select {
		case <-t.Parked():
		case <-end.C:
			return errors.New("a socket is still being read")
		}
	}
	if err := p.drain(); err != nil {
		return err
	}
	if err := p.endSlowProcessors(); err != nil {
		return err
	}
	// Shutdown would close them.
	for _, l := range p.Moved {
		session, err := Unexported[*bfd.Session](l, "bfdSession")
		if err != nil {
			return err
		}
		*session = nil
	}
	p.Shutdown()
	for _, q := range p.Queues {
		close(q) // its processor ends, now that the data plane no longer runs
	}
	return nil
}

// drain waits until all packets are in the pool, but for those that parked readers hold.
func (p *Plane) drain() error {
	pool := reflect.ValueOf(&p.Pool).Elem().FieldByName("pool")
	if pool.Kind() != reflect.Chan {
		return errors.New("this version of the reference router has another pool of packets")
	}
	all := pool.Cap() - len(p.Taps)*p.Config.BatchSize
	for end := time.Now().Add(endWait); pool.Len() != all; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d packets are on their way", all-pool.Len(), all)
		}
	}
	return nil
}

// endSlowProcessors ends the goroutines that answer packets by SCMP. They wait at queues that only processors know.
func (p *Plane) endSlowProcessors() error {
	raw, err := expired()
	if err != nil {
		return err
	}
	for i := range min(p.Config.NumSlowPathProcessors, p.Config.NumProcessors) {
		packet := p.Pool.Get()
		packet.RawPacket = packet.RawPacket[:copy(packet.RawPacket, raw)]
		last := newLastPacket()
		packet.Link = last
		p.Queues[i] <- packet
		select {
		case <-last.ended:
		case <-time.After(endWait):
			return errors.New("a processor of the slow path does not end")
		}
	}
	return nil
}

// expired returns a packet whose hop field is past its time, which processors leave to those of the slow path.
func expired() ([]byte, error) {
	h := &slayers.SCION{NextHdr: slayers.L4UDP, PathType: scion.PathType, SrcIA: 1, DstIA: 1, Path: &scion.Decoded{
		Base:       scion.Base{PathMeta: scion.MetaHdr{SegLen: [3]uint8{2}}, NumINF: 1, NumHops: 2},
		InfoFields: []path.InfoField{{}}, HopFields: make([]path.HopField, 2),
	}}
	host := addr.MustParseHost("127.0.0.1")
	if err := errors.Join(h.SetSrcAddr(host), h.SetDstAddr(host)); err != nil {
		return nil, err
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, h); err != nil {
		return nil, fmt.Errorf("making the last packet: %w", err)
	}
	return buf.Bytes(), nil
}

// lastPacket is the link of a packet that ends the slow path's processor which gets it.
type lastPacket struct {
	scionrouter.Link
	metrics   scionrouter.InterfaceMetrics
	processed atomic.Bool
	ended     chan struct{}
}

func newLastPacket() *lastPacket {
	l := &lastPacket{ended: make(chan struct{})}
	nowhere := prometheus.NewCounter(prometheus.CounterOpts{Name: "nowhere"})
	for i := range l.metrics {
		l.metrics[i].ProcessedPackets, l.metrics[i].DroppedPacketsInvalid, l.metrics[i].DroppedPacketsBusySlowPath = nowhere, nowhere, nowhere
	}
	return l
}

// Metrics implements scionrouter.Link. A processor calls it once it has processed the packet.
func (l *lastPacket) Metrics() *scionrouter.InterfaceMetrics {
	l.processed.Store(true)
	return &l.metrics
}

// IfID implements scionrouter.Link. The first caller after Metrics is a processor of the slow path.
func (l *lastPacket) IfID() uint16 {
	if l.processed.Load() {
		close(l.ended)
		runtime.Goexit()
	}
	return 0
}

// Scope implements scionrouter.Link.
func (l *lastPacket) Scope() scionrouter.LinkScope { return scionrouter.Internal }

// IsUp implements scionrouter.Link.
func (l *lastPacket) IsUp() bool { return true }

// BFDSession implements scionrouter.Link.
func (l *lastPacket) BFDSession() *bfd.Session { return nil }

// Unexported returns a field of the struct that v points to. The error is about a version of the reference without it.
func Unexported[T any](v any, name string) (*T, error) {
	s := reflect.ValueOf(v)
	if s.Kind() != reflect.Pointer || s.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("this version of the reference router has no field %s", name)
	}
	f := s.Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil, fmt.Errorf("this version of the reference router has no field %s", name)
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}
