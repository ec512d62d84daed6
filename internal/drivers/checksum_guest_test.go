// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// openUnfinished opens a socket on the device of a far end that takes frames whose UDP checksum has only its pseudo header: the device is
// to do the rest, and leaves that to the receiver if it can.
func (s *packetSocket) openUnfinished() (*unfinished, error) {
	var at unix.Sockaddr
	raw, err := s.file.SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(fd uintptr) { at, err = unix.Getsockname(int(fd)) })
		if ctlErr != nil {
			err = ctlErr
		}
	}
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: at.(*unix.SockaddrLinklayer).Ifindex})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("a socket for unfinished checksums: %w", err)
	}
	return &unfinished{os.NewFile(uintptr(fd), "far end")}, nil
}

// unfinished sends frames with unfinished checksums.
type unfinished struct{ *os.File }

// Send takes a frame of UDP over IPv4 without a tag.
func (u *unfinished) Send(frame []byte) error {
	frame = slices.Clone(frame)
	const csumStart, csumOffset = 34, 6
	pseudo := slices.Concat(frame[26:34], []byte{0, unix.IPPROTO_UDP}, frame[38:40])
	binary.BigEndian.PutUint16(frame[csumStart+csumOffset:], fold(pseudo))
	// struct virtio_net_hdr: flags, kind of GSO, length of headers, size of segments, where the sum starts and where it goes.
	h := []byte{1, unix.VIRTIO_NET_HDR_GSO_NONE}
	for _, n := range []uint16{0, 0, csumStart, csumOffset} {
		h = binary.NativeEndian.AppendUint16(h, n)
	}
	_, err := u.Write(append(h, frame...))
	return err
}

// fold adds up 16-bit words with the carry at the other end.
func fold(b []byte) uint16 {
	sum := uint32(0)
	for n := 0; n+1 < len(b); n += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[n:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// wholeUDP tells whether the UDP checksum of a frame over IPv4 is right.
func wholeUDP(f []byte) bool {
	size := int(binary.BigEndian.Uint16(f[38:]))
	return len(f) >= 34+size && fold(slices.Concat(f[26:34], []byte{0, unix.IPPROTO_UDP}, f[38:40], f[34:34+size])) == 0xffff
}

// unfinished sends packets whose checksum the sender's card leaves to the receiver's. They have to leave with a right one, or doctor warns.
func (m *trial) unfinished(mode string) string {
	m.Helper()
	m.detach(m.T)
	in := *m.in
	switch s := m.in.far.(type) {
	case *packetSocket:
		var u *unfinished
		m.bed.there.Must(m.T, func() (err error) {
			u, err = s.openUnfinished()
			return err
		})
		defer u.Close()
		in.far = sender{s, u}
	case tap:
		end := m.machine(&in)
		defer end()
	}
	if !m.leaves(&in) {
		return "no such offload"
	}
	m.attach(m.T, config(mode, &in, m.out))
	defer m.detach(m.T)
	sent := m.send(to(&in, m.out.beyond4(), 16), &in, m.out)
	wrong := 0
	for _, f := range sent.arrived {
		if !wholeUDP(f) {
			wrong++
		}
	}
	m.Logf("%d of %d checksums are wrong: %v", wrong, len(sent.arrived), sent.counts)
	warned := ""
	for _, p := range []*port{&in, m.out} {
		if line, command := m.finding(p.name, "checksum"); strings.HasPrefix(line, "warn ") {
			warned = line + " -> " + command
		}
	}
	m.Logf("doctor: %s", warned)
	if wrong == 0 {
		return sent.check(m)
	}
	if warned == "" {
		m.Error("checksums are wrong, and doctor does not warn")
	}
	return "wrong"
}

// machine makes the port that packets come in by that of a virtual machine: a tap whose program tells which checksums are unfinished.
// end deletes it.
func (m *trial) machine(in *port) (end func()) {
	m.Helper()
	in.name, in.number = "vm", in.number+10
	m.here.Must(m.T, func() error {
		if err := in.openTapWith(unix.IFF_VNET_HDR); err != nil {
			return err
		}
		return in.configure()
	})
	at := &arrivals{}
	m.bed.out[in] = at
	file := in.far.(tap)
	in.far = &unfinishedTap{file}
	go at.listen(in.far)
	return func() {
		delete(m.bed.out, in)
		file.Close()
	}
}

// unfinishedTap is the far end of such a tap.
type unfinishedTap struct{ tap }

func (u *unfinishedTap) Send(frame []byte) error { return (&unfinished{u.File}).Send(frame) }

// Receive takes off the header in front of the frame.
func (u *unfinishedTap) Receive(buffer []byte) (int, error) {
	n, err := u.Read(buffer)
	if err != nil || n < vnetHeader {
		return 0, err
	}
	return copy(buffer, buffer[vnetHeader:n]), nil
}

// vnetHeader is the length of struct virtio_net_hdr.
const vnetHeader = 10

// sender is a far end that sends by other means.
type sender struct {
	*packetSocket
	by *unfinished
}

func (s sender) Send(frame []byte) error { return s.by.Send(frame) }

// leaves tells whether frames come in by a port with checksums that are unfinished.
func (m *trial) leaves(in *port) (does bool) {
	m.Helper()
	var s far
	m.here.Must(m.T, func() (err error) {
		s, err = openSocket(in.name)
		return err
	})
	defer s.Close()
	m.ready(in)
	if err := in.far.Send(to(in, m.out.beyond4(), 1)[0].frame(m.T)); err != nil {
		m.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	for {
		n, err := s.Receive(buffer)
		if err != nil {
			m.Fatal(err)
		}
		if f := buffer[:n]; bytes.Contains(f, []byte(mark)) {
			return !wholeUDP(f)
		}
	}
}
