// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/testbed"
)

// Stamps keep UDP checksums valid, at even and at odd offsets, over IPv4 and with SCION in the payload.
func TestStampsKeepChecksums(t *testing.T) {
	testbed.NeedRoot(t)
	from, to := wire(t)
	l, err := load.Listen(to)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u := load.UDPTraffic{Sizes: []int{60, 61, 139, 590, 1513, 1514}, Flows: 5, DstMAC: to.MAC}
	if err := u.Check(); err != nil {
		t.Fatal(err)
	}
	frames, err := u.Frames(from)
	if err != nil {
		t.Fatal(err)
	}
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	scion, err := SCIONTraffic{Payload: load.StampLen}.mix(router, Path{Source: from, In: to}, 8, []int{0, 151, 512, 1401})
	if err != nil {
		t.Fatal(err)
	}
	frames = append(frames, scion...)
	var capture *pcapgo.EthernetHandle
	err = to.Netns.Do(func() error {
		capture, err = pcapgo.NewEthernetHandle(to.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	gen, err := load.NewGenerator(load.GeneratorOptions{Frames: frames, From: from, Stamp: true, Flows: 3, CPU: load.LastCPU()})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	stamps := map[uint64]bool{}
	for range 3 * len(frames) {
		// One packet at a time, because the socket's buffer is small.
		if _, err := gen.Run(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		f, _, err := capture.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		layout, ok := scionpkt.Locate(f)
		if !ok || net.HardwareAddr(f[:6]).String() != to.MAC.String() {
			t.Fatalf("not ours: %x", f)
		}
		if sum := scionpkt.UDPSum(f, layout); sum != 0xffff {
			t.Errorf("frame of %d bytes has the sum %04x: %x", len(f), sum, f)
		}
		stamp := f[len(f)-load.StampLen:]
		if magic := binary.BigEndian.Uint32(stamp) >> 8; magic != 0x43764c {
			t.Errorf("frame of %d bytes has the magic %06x", len(f), magic)
		}
		number := binary.BigEndian.Uint64(stamp[8:]) >> 36
		flow := binary.BigEndian.Uint64(stamp) >> 16 & 0xffffff
		if flow >= 3 || stamps[flow<<32|number] {
			t.Errorf("packet %d of flow %d", number, flow)
		}
		stamps[flow<<32|number] = true
	}
}

// SCION headers alone have no room for a stamp.
func TestGeneratorRefusesSCIONHeadersWithoutRoomForAStamp(t *testing.T) {
	router, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	mac := make([]byte, 6)
	p := Path{Source: load.End{MAC: mac}, In: load.End{MAC: mac}}
	headersOnly, err := SCIONTraffic{Size: 137, Crossing: true}.frames(router, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load.NewGenerator(load.GeneratorOptions{Frames: headersOnly, Stamp: true}); err == nil {
		t.Errorf("frames of %d bytes stamped", len(headersOnly[0]))
	}
}

// wire connects two new namespaces.
func wire(t *testing.T) (from, to load.End) {
	t.Helper()
	var ends [2]*load.Netns
	for i := range ends {
		s, err := load.NewNetns()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		ends[i] = s
	}
	from, to, err := load.NewWire(ends[0], ends[1], "cvg0", "cvg1", 0)
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}
