// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// synBed is a server in this namespace and a client in another one, connected by a veth pair.
type synBed struct {
	server *net.Interface
	client *testbed.Namespace
	cliMAC net.HardwareAddr
}

var (
	synAddr4 = netip.MustParseAddr("192.0.2.1")
	synAddr6 = netip.MustParseAddr("2001:db8::1")
)

func newSynBed(t *testing.T) *synBed {
	t.Helper()
	testbed.InNamespace(t)
	testbed.Sysctl(t, "core/somaxconn", "8")
	b := &synBed{client: testbed.NewNamespace(t)}
	b.server = testbed.AddVeth(t, "srv", "cli")
	b.client.Take(t, "cli")
	var index int
	b.client.Must(t, func() error {
		l, err := netlink.LinkByName("cli")
		if err != nil {
			return err
		}
		b.cliMAC = l.Attrs().HardwareAddr
		index = l.Attrs().Index
		return testbed.PrepareEnd("cli", "192.0.2.2/24", "2001:db8::2/64")
	})
	if err := testbed.PrepareEnd("srv", "192.0.2.1/24", "2001:db8::1/64"); err != nil {
		t.Fatal(err)
	}
	b.client.Must(t, func() error { return testbed.PassAll(t, index) })
	// The route to the sources of floods leads to the client.
	for dst, via := range map[string]string{"0.0.0.0/0": "192.0.2.2", "::/0": "2001:db8::2"} {
		if err := testbed.AddRoute(dst, via); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// attach puts the filter on the server's device.
func (f *synFilter) attach(t *testing.T) {
	t.Helper()
	l, err := link.AttachXDP(link.XDPOptions{Program: f.prog, Interface: f.iface.Index, Flags: link.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// flood sends SYNs, each with another source, until stop is called, which returns how many. It has sent a thousand when it
// returns.
func (b *synBed) flood(t *testing.T, to netip.AddrPort) (stop func() uint64) {
	t.Helper()
	var fd int
	b.client.Must(t, func() (err error) {
		l, err := net.InterfaceByName("cli")
		if err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: l.Index})
	})
	var sent atomic.Uint64
	var quit atomic.Bool
	var wg sync.WaitGroup
	first := make(chan error, 1)
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer unix.Close(fd)
		for n := uint32(0); !quit.Load(); n++ {
			s := synFrame{dstMAC: b.server.HardwareAddr, dst: to, flags: tcpSYN, seq: n * 7919, opts: linuxOptions(n)}
			if to.Addr().Is4() {
				s.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18 + byte(n>>16)&1, byte(n >> 8), byte(n)}), uint16(1024+n%50000))
			} else {
				a := netip.MustParseAddr("2001:db8:f::").As16()
				bpfobj.Native.PutUint32(a[12:], n)
				s.src = netip.AddrPortFrom(netip.AddrFrom16(a), uint16(1024+n%50000))
			}
			_, err := unix.Write(fd, s.build())
			if err == nil {
				sent.Add(1)
			} else if !errors.Is(err, unix.ENOBUFS) {
				first <- err
				return
			}
			if sent.Load() == 1000 {
				first <- nil
			}
			if n%64 == 63 {
				time.Sleep(200 * time.Microsecond) // leave the CPU to the server and the client
			}
		}
	}()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		quit.Store(true)
		wg.Wait()
		return sent.Load()
	}
}

// linuxOptions returns the options of a SYN as Linux sends it.
func linuxOptions(tsval uint32) []byte {
	return []byte{2, 4, 0x05, 0xb4, 4, 2, 8, 10, byte(tsval >> 24), byte(tsval >> 16), byte(tsval >> 8), byte(tsval), 0, 0, 0, 0, 1, 3, 3, 7}
}

// netstat returns a counter of /proc/net/netstat in this namespace.
func netstat(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for n := 0; n+1 < len(lines); n += 2 {
		names, values := strings.Fields(lines[n]), strings.Fields(lines[n+1])
		for i, v := range names {
			if v == name {
				return values[i]
			}
		}
	}
	t.Fatalf("no counter %s", name)
	return ""
}

// halfOpen returns the number of connections in state SYN-RECEIVED in this namespace.
func halfOpen(t *testing.T) (n int) {
	t.Helper()
	for _, f := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/thread-self/net/" + f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if w := strings.Fields(line); len(w) > 3 && w[3] == "03" {
				n++
			}
		}
	}
	return n
}
