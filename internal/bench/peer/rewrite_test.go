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
	"culvert/internal/testbed"

	"github.com/cilium/ebpf"
)

// What rewrite leaves out are checks: the packets that it sends are culvert's, to the byte.
func TestRewriteSendsWhatCulvertSends(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	common, err := load.UDPFrames(8, peer.FrameSize)
	if err != nil {
		t.Fatal(err)
	}
	var (
		same [][]byte
		sent [2][][]byte
	)
	for i, name := range []string{"culvert-cold", "rewrite"} {
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
		// Packets hold the time of their making, and each path has Ethernet addresses of its own.
		if same == nil {
			same = frames
		}
		frames = load.Addressed(same, row.Path.In.MAC, row.Path.Source.MAC)
		for _, f := range frames {
			sent[i] = append(sent[i], runOnce(t, device, row.Path.In, f)[12:])
		}
		for n, f := range frames {
			if bytes.Equal(sent[i][n], f[12:]) {
				t.Errorf("device %d left frame %d as it was", i, n)
			}
		}
	}
	for n := range common {
		if !bytes.Equal(sent[0][n], sent[1][n]) {
			t.Errorf("frame %d: culvert sends\n%x, rewrite\n%x", n, sent[0][n], sent[1][n])
		}
	}
}

// runOnce puts a frame through a device's program and returns what becomes of it.
func runOnce(t *testing.T, d peer.SingleProgram, in load.End, frame []byte) []byte {
	t.Helper()
	prog, want := d.Program()
	o := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+64),
		Context: load.XDPContext{DataEnd: uint32(len(frame)), IngressIfindex: uint32(in.Index)},
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
