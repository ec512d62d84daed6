// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/pkg/slayers"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// patience bounds every wait; a test that passes never comes near it.
const patience = time.Minute

// The reference router behind culvert answers a traceroute request with a router alert, which culvert passes to it, while
// culvert forwards a flood.
func TestReferenceAnswersBehindCulvert(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	frames, err := load.UDPFrames(64, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	device := peer.DeviceOf(t, "veth", "culvert+reference", peer.DeviceOptions{Router: "../../../bin/peers/router"})
	row := scenario.VethRow{Label: "culvert+reference", Device: device, Exclusive: true, Opts: scenario.VethOptions{Frames: frames, CPU: load.LastCPU()}}
	defer func() {
		if err := row.Teardown(); err != nil {
			t.Error(err)
		}
	}()
	if err := row.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := row.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type outcome struct {
		sent load.Sent
		err  error
	}
	flood := make(chan outcome, 1)
	flooding := make(chan struct{})
	go func() {
		// The runs are short, so that the flood ends soon after it is interrupted.
		row.Gen.Pace(100_000)
		var total outcome
		first := sync.OnceFunc(func() { close(flooding) })
		for total.err == nil && ctx.Err() == nil {
			var s load.Sent
			s, total.err = row.Gen.Run(ctx, 10_000)
			total.sent.Packets += s.Packets
			first()
		}
		flood <- total
	}()
	<-flooding
	kind, err := askReference(t, &row)
	cancel()
	sent := <-flood
	if err != nil || kind != slayers.SCMPTypeTracerouteReply {
		t.Errorf("the answer is %v, error %v", kind, err)
	}
	if sent.err != nil && !errors.Is(sent.err, context.Canceled) {
		t.Error(sent.err)
	}
	seen, err := row.Sink.Seen()
	for end := time.Now().Add(patience); err == nil && seen.Packets < sent.sent.Packets && time.Now().Before(end); time.Sleep(scenario.SettleQuiet) {
		seen, err = row.Sink.Seen()
	}
	if err != nil {
		t.Fatal(err)
	}
	if seen.Packets == 0 || seen.Packets != sent.sent.Packets {
		t.Errorf("%d of %d packets arrived", seen.Packets, sent.sent.Packets)
	}
	ports, err := peer.InstanceOf(device).Ports()
	if err != nil {
		t.Fatal(err)
	}
	byReason := map[string]uint64{}
	for _, port := range ports {
		for _, r := range port.Reasons {
			if port.Interface == row.Path.In.Name {
				byReason[r.Verdict] += r.Packets
			}
		}
	}
	if byReason["fwd"] != sent.sent.Packets || byReason["punt"] == 0 {
		t.Errorf("culvert's verdicts are %v, of %d packets and a traceroute request", byReason, sent.sent.Packets)
	}
}

// askReference sends a traceroute request from the source until there is an answer, and returns its type.
func askReference(t *testing.T, row *scenario.VethRow) (kind slayers.SCMPType, err error) {
	t.Helper()
	request := peer.TracerouteRequest(t, row.Path)
	err = row.Path.Source.Netns.Do(func() error {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		at := &unix.SockaddrLinklayer{Protocol: all, Ifindex: row.Path.Source.Index}
		if err := errors.Join(unix.Bind(fd, at),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})); err != nil {
			return err
		}
		buf := make([]byte, 2048)
		for end := time.Now().Add(patience); time.Now().Before(end); {
			to := &unix.SockaddrLinklayer{Ifindex: row.Path.Source.Index, Halen: 6}
			if err := unix.Sendto(fd, request, 0, to); err != nil {
				return err
			}
			for {
				n, from, err := unix.Recvfrom(fd, buf, 0)
				if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
					break
				}
				if err != nil {
					return err
				}
				ll, ok := from.(*unix.SockaddrLinklayer)
				if !ok || ll.Pkttype == unix.PACKET_OUTGOING {
					continue
				}
				if answer, ok := scmpType(buf[:n]); ok {
					kind = answer
					return nil
				}
			}
		}
		return fmt.Errorf("no answer in %v", patience)
	})
	return kind, err
}

// scmpType is the type of the SCMP message in a frame. It returns false if the frame has none.
func scmpType(frame []byte) (slayers.SCMPType, bool) {
	outer := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	udp, ok := outer.Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok {
		return 0, false
	}
	inner := gopacket.NewPacket(udp.Payload, slayers.LayerTypeSCION, gopacket.NoCopy)
	scmp, ok := inner.Layer(slayers.LayerTypeSCMP).(*slayers.SCMP)
	if !ok {
		return 0, false
	}
	return scmp.TypeCode.Type(), true
}
