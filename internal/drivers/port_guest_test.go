// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// port is a card under test with what it is joined to.
type port struct {
	// driver is the name of the card's driver, with the number of queues if it has several. number is that of the port, in its
	// addresses.
	driver string
	number int
	// name and mac are those of the card, in the namespace with culvert.
	name string
	mac  net.HardwareAddr
	far  far
	// bond is nil for a port that is no bond.
	bond *bonded
}

// far is the other end of a port.
type far interface {
	// Send sends a frame to the card.
	Send(frame []byte) error
	// Receive waits for a frame from the card.
	Receive(buffer []byte) (int, error)
	Close() error
}

// hop is the link address of the host at the far end, which is none of any card.
func (p *port) hop() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, byte(p.number), 9} }

// ip4 returns an IPv4 address in the port's network. Host 1 is culvert, 2 is the far end.
func (p *port) ip4(host byte) net.IP { return net.IPv4(10, byte(p.number), 0, host).To4() }

// tagged4 returns an IPv4 address in the network of the port's VLAN.
func (p *port) tagged4(host byte) net.IP { return net.IPv4(10, 100+byte(p.number), 0, host).To4() }

// beyondTagged4 is an IPv4 address behind the host at the far end of the port's VLAN.
func (p *port) beyondTagged4() net.IP { return net.IPv4(203, 0, 100+byte(p.number), 7).To4() }

// beyond4 is an IPv4 address behind the host at the far end.
func (p *port) beyond4() net.IP { return net.IPv4(203, 0, byte(p.number), 7).To4() }

// packetSocket is the far end of a port that is a card, too.
type packetSocket struct{ file *os.File }

// openFar opens a socket on a device of the calling thread's network namespace that gets what comes in, whatever its addresses, and sets
// the device up.
func openFar(l netlink.Link) (far, error) {
	name := l.Attrs().Name
	if err := testbed.WriteSysctl("ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil {
		return nil, err
	}
	if err := errors.Join(netlink.LinkSetARPOff(l), netlink.SetPromiscOn(l), netlink.LinkSetMTU(l, farMTU), netlink.LinkSetUp(l)); err != nil {
		return nil, fmt.Errorf("far end %s: %w", name, err)
	}
	return openSocket(name)
}

// openSocket opens a socket that gets what comes in by a device of the calling thread's network namespace.
func openSocket(name string) (far, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		return nil, err
	}
	s := &packetSocket{os.NewFile(uintptr(fd), "far end")}
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: dev.Index, Protocol: all})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// farMTU is the MTU of all far ends, the largest of the emulator's cards.
const farMTU = 9000

func (s *packetSocket) Send(frame []byte) error {
	_, err := s.file.Write(frame)
	return err
}

// Receive puts a tag back into the frame, which the kernel has taken out before the socket sees it.
func (s *packetSocket) Receive(buffer []byte) (n int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	beside := make([]byte, 64)
	readErr := raw.Read(func(fd uintptr) bool {
		var m int
		n, m, _, _, err = unix.Recvmsg(int(fd), buffer[:len(buffer)-4], beside[:cap(beside)], 0)
		beside = beside[:m]
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(readErr, err); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(beside)
	for _, m := range messages {
		// struct tpacket_auxdata: status, two lengths, two offsets, the tag and its protocol.
		if m.Header.Type != unix.PACKET_AUXDATA || binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		copy(buffer[16:], buffer[12:n])
		binary.BigEndian.PutUint16(buffer[12:], binary.NativeEndian.Uint16(m.Data[18:]))
		binary.BigEndian.PutUint16(buffer[14:], binary.NativeEndian.Uint16(m.Data[16:]))
		n += 4
	}
	return n, err
}

func (s *packetSocket) Close() error { return s.file.Close() }

// arrivals are the frames that have come out of a port.
type arrivals struct {
	mu     sync.Mutex
	frames [][]byte
	// also, if set, gets each of them too.
	also func(frame []byte)
}

// pass sets what gets each frame too, nil for nothing.
func (a *arrivals) pass(also func(frame []byte)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.also = also
}

// listen collects frames until the far end is closed.
func (a *arrivals) listen(from far) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Receive(buffer)
		if errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return
		}
		a.mu.Lock()
		a.frames = append(a.frames, bytes.Clone(buffer[:n]))
		if a.also != nil {
			a.also(buffer[:n])
		}
		a.mu.Unlock()
	}
}

// of returns the frames that pass the test.
func (a *arrivals) of(is func([]byte) bool) (found [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.frames {
		if is(f) {
			found = append(found, f)
		}
	}
	return found
}

// forget drops all frames.
func (a *arrivals) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frames = nil
}

// patience bounds every wait: a guest of an emulator is slow.
const patience = 4 * time.Minute

// wait polls until done returns true, and returns false if that takes too long.
func wait(done func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// linkOf returns the device with a link address in the calling thread's namespace.
func linkOf(t *testing.T, mac net.HardwareAddr) netlink.Link {
	t.Helper()
	var found netlink.Link
	if !wait(func() bool {
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		n := slices.IndexFunc(links, func(l netlink.Link) bool { return bytes.Equal(l.Attrs().HardwareAddr, mac) })
		if n >= 0 {
			found = links[n]
		}
		return n >= 0
	}) {
		t.Fatalf("no card has the address %s", mac)
	}
	return found
}
