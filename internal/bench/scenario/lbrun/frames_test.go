// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"bytes"
	"net/netip"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

func TestLBPackets(t *testing.T) {
	const n = 70_000
	for _, syn := range []bool{false, true} {
		clients := map[netip.AddrPort]bool{}
		for i, f := range makePackets(n, syn) {
			if i%1000 != 0 {
				clients[clientAddr(uint32(i))] = true
				continue
			}
			p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
			ip, isIP := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			tcp, isTCP := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if p.ErrorLayer() != nil || !isIP || !isTCP || len(f) != frameLen || len(tcp.Payload) != 0 {
				t.Fatalf("packet %d: %v", i, p)
			}
			if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
			for _, sum := range []func() (error, gopacket.ChecksumVerificationResult){ip.VerifyChecksum, tcp.VerifyChecksum} {
				if err, result := sum(); err != nil || !result.Valid {
					t.Fatalf("packet %d: checksum %+v, error %v", i, result, err)
				}
			}
			src, _ := netip.AddrFromSlice(ip.SrcIP)
			client := netip.AddrPortFrom(src, uint16(tcp.SrcPort))
			if client != clientAddr(uint32(i)) || ip.DstIP.String() != vip4.Addr().String() || uint16(tcp.DstPort) != vip4.Port() {
				t.Errorf("packet %d is from %s to %s port %d", i, client, ip.DstIP, tcp.DstPort)
			}
			if tcp.SYN != syn || tcp.ACK == syn {
				t.Errorf("packet %d: SYN %t, ACK %t", i, tcp.SYN, tcp.ACK)
			}
			clients[client] = true
		}
		if len(clients) != n {
			t.Errorf("%d clients, want %d", len(clients), n)
		}
	}
}

// With Vary the generator makes the same packets as from one frame for each flow, in the same order, and then begins anew.
func TestGeneratorVaries(t *testing.T) {
	testbed.NeedRoot(t)
	wire := scenario.VethRow{}
	defer func() {
		if err := wire.Teardown(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := wire.BuildPath(); err != nil {
		t.Fatal(err)
	}
	from, to := wire.Path.Source, wire.Path.Sink
	listening, err := load.Listen(to)
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	for _, syn := range []bool{false, true} {
		const flows, begin, packets = 70, 20, 100
		frames := load.Addressed(makePackets(flows, syn), to.MAC, from.MAC)
		gen, err := load.NewGenerator(load.GeneratorOptions{Frames: frames[:1], From: from, CPU: load.LastCPU(), Vary: flows, VaryFrom: begin})
		if err != nil {
			t.Fatal(err)
		}
		defer gen.Close()
		err = to.Netns.Do(func() error {
			fd, err := packetSocket(to)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			// The second run continues with the flow after the last one of the first run.
			for range 2 {
				if _, err := gen.Run(t.Context(), packets/2); err != nil {
					return err
				}
			}
			for i := range packets {
				f, err := receive(fd)
				if err != nil {
					return err
				}
				if want := frames[(begin+i)%flows]; !bytes.Equal(f, want) {
					t.Fatalf("packet %d is\n%x, want\n%x", i, f, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
