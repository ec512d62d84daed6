// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/bpfobj"
	"culvert/internal/testbed"

	"github.com/cilium/ebpf"
)

// rewrite leaves out only checks: it sends the same bytes as culvert.
func TestRewriteSendsWhatCulvertSends(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	common, err := load.UDPFrames(8, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	var received [][]byte
	sent := map[string][][]byte{}
	for _, name := range []string{"culvert-cold", "rewrite"} {
		device := peer.DeviceOf(t, "cost", name, peer.DeviceOptions{}).(peer.SingleProgram)
		row := scenario.VethRow{Label: "a row", Device: device, Opts: scenario.VethOptions{Frames: common}}
		defer func() {
			if err := row.Teardown(); err != nil {
				t.Error(err)
			}
		}()
		frames, err := row.BuildPath()
		if err == nil {
			err = row.Attach(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		// Both devices get the packets made for the first one, because packets contain the time at which they were made. Only
		// the Ethernet addresses differ.
		if received == nil {
			received = frames
		}
		const afterMACs = 12
		for n, f := range load.Addressed(received, row.Path.In.MAC, row.Path.Source.MAC) {
			out := runOnce(t, device, row.Path.In, f)[afterMACs:]
			if bytes.Equal(out, f[afterMACs:]) {
				t.Errorf("%s left frame %d as it was", name, n)
			}
			sent[name] = append(sent[name], out)
		}
	}
	for n := range common {
		if culvert, rewrite := sent["culvert-cold"][n], sent["rewrite"][n]; !bytes.Equal(culvert, rewrite) {
			t.Errorf("frame %d: culvert sends\n%x, rewrite\n%x", n, culvert, rewrite)
		}
	}
}

// runOnce puts a frame through a device's program and returns the frame that comes out. It checks the verdict.
func runOnce(t *testing.T, d peer.SingleProgram, in load.End, frame []byte) []byte {
	t.Helper()
	prog, want := d.Program()
	o := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+64),
		Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(in.Index)},
	}
	err := in.Netns.Do(func() error {
		verdict, err := prog.Run(&o)
		if err == nil && verdict != want {
			err = errors.New("another verdict than a redirect")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return o.DataOut
}
