// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A veth takes redirected frames only while its peer uses NAPI. Otherwise the address does not resolve,
// and the slow path sends the packets.
func TestDeviceWithoutXmit(t *testing.T) {
	w := newWire(t, Options{})
	if w.resolver.xdp == nil {
		t.Fatal("this kernel does not say what a driver can do with XDP: Linux 6.3 or later is needed")
	}
	w.listen("cv0p", 0)
	w.track(there, here)
	w.expect(NextHop{})
	w.listen("cv0p", 1)
	w.expect(w.via("cv0", "cv0p"))
	w.listen("cv0p", 0)
	w.expect(NextHop{})
}

// TestFramesOfSeveralBuffers compares what the next hop says of frames of several buffers with what the kernel does with one: a
// program on one pair redirects it into the other pair.
func TestFramesOfSeveralBuffers(t *testing.T) {
	const etherType = 0x88b5 // for local experiments: nobody else sends frames with it
	w := newWire(t, Options{})
	for _, name := range []string{"cv0", "cv1"} {
		check(t, w.own.LinkSetMTU(w.link(w.own, name), 9000))
		check(t, w.peer.LinkSetMTU(w.link(w.peer, name+"p"), 9000))
	}
	w.track(there, netip.Addr{})
	hop := w.via("cv0", "cv0p")
	w.expect(hop)

	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "redirect", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R1, int32(hop.IfIndex)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return()},
	})
	check(t, err)
	defer prog.Close()
	attached, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: w.link(w.own, "cv1").Attrs().Index, Flags: link.XDPDriverMode})
	check(t, err)
	defer attached.Close()

	protocol := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, etherType)))
	socket := func(name string) (fd int) {
		w.atPeer(func() {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			check(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: w.link(w.peer, name).Attrs().Index}))
			check(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience.Seconds())}))
		})
		return fd
	}
	in, out := socket("cv1p"), socket("cv0p")
	large, small := make([]byte, 8000), make([]byte, 100)
	for _, frame := range [][]byte{large, small} {
		copy(frame, hop.DstMAC[:])
		binary.BigEndian.PutUint16(frame[12:], etherType)
		check(t, unix.Send(in, frame, 0))
	}
	// The small frame comes after the large one, if that comes at all.
	read := make([]byte, 9100)
	n, err := unix.Read(out, read)
	check(t, err)
	arrived := bytes.Equal(read[:n], large)
	if arrived {
		n, err = unix.Read(out, read)
		check(t, err)
	}
	if !bytes.Equal(read[:n], small) {
		t.Fatalf("a frame of %d bytes came out", n)
	}
	if arrived == hop.LinearOnly {
		t.Errorf("the next hop says one buffer only: %v; a frame of several buffers came through: %v", hop.LinearOnly, arrived)
	}
}
