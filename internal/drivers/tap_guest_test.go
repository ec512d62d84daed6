// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// tap is the far end of a tap device, which is no card: what a program writes comes in.
type tap struct{ *os.File }

func (t tap) Send(frame []byte) error {
	_, err := t.Write(frame)
	return err
}

func (t tap) Receive(buffer []byte) (int, error) { return t.Read(buffer) }

// addTap makes a port of a tap device.
func (b *bed) addTap(t *testing.T, number int) {
	t.Helper()
	p := &port{driver: "tun", number: number, name: fmt.Sprintf("p%d", number)}
	b.here.Must(t, p.openTap)
	b.add(t, p)
}

// openTap makes the device.
func (p *port) openTap() error { return p.openTapWith(0) }

// openTapWith makes the device with more flags.
func (p *port) openTapWith(flags uint16) error {
	// Only what is written without waiting goes to XDP in the driver.
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	req, err := unix.NewIfreq(p.name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("make a tap: %w", err)
	}
	p.far = tap{os.NewFile(uintptr(fd), p.name)}
	dev, err := net.InterfaceByName(p.name)
	if err == nil {
		p.mac = dev.HardwareAddr
	}
	return err
}
