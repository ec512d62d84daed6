// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"culvert/internal/testbed"

	"github.com/cilium/ebpf"
)

// What rewrite leaves out are checks: the packets that it sends are culvert's, to the byte.
func TestRewriteSendsWhatCulvertSends(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	common, err := UDPFrames(8, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	var (
		same [][]byte
		sent [2][][]byte
	)
	for i, name := range []string{"culvert-cold", "rewrite"} {
		device := deviceOf(t, "cost", name, Terms{}).(Costed)
		row := vethRow{name: "a row", device: device, opts: vethOptions{Frames: common}}
		defer func() {
			if err := row.Teardown(); err != nil {
				t.Error(err)
			}
		}()
		frames, err := row.lay()
		if err == nil {
			err = row.attach(context.Background())
		}
		if err != nil {
			t.Fatal(err)
		}
		// Packets hold the time of their making, and each path has Ethernet addresses of its own.
		if same == nil {
			same = frames
		}
		frames = Addressed(same, row.path.In.MAC, row.path.Source.MAC)
		for _, f := range frames {
			sent[i] = append(sent[i], runOnce(t, device, row.path.In, f)[12:])
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
func runOnce(t *testing.T, d Costed, in End, frame []byte) []byte {
	t.Helper()
	prog, want := d.Program()
	o := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+64),
		Context: xdpContext{DataEnd: uint32(len(frame)), IngressIfindex: uint32(in.Index)},
	}
	err := in.Space.Do(func() error {
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
