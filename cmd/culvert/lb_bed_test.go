// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// lbBed is a network namespace with a load balancer on lb0. Clients are on lb1, the peer of lb0. Backends .11, .12 and .13 of
// 10.0.0.0/24 and fd00::/64 are on out1, the peer of out0.
type lbBed struct {
	t        *testing.T
	dir      string
	to, from int // sockets
	client   int // interface
	mac      net.HardwareAddr

	mu  sync.Mutex
	got map[netip.Addr]uint64 // packets by outer destination
	// clients has packets by the client of send, of those in IPv4 in IPv4.
	clients map[uint32]int
	all     atomic.Uint64
}

func newLBBed(t *testing.T) *lbBed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	b := &lbBed{t: t, dir: t.TempDir(), got: make(map[netip.Addr]uint64), clients: make(map[uint32]int)}
	for name, peer := range map[string]string{"lb0": "lb1", "out0": "out1"} {
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
		for _, end := range []string{name, peer} {
			if end != "out0" { // the kernel must not send packets of its own
				must(os.WriteFile("/proc/sys/net/ipv6/conf/"+end+"/disable_ipv6", []byte("1"), 0))
			}
			l, err := netlink.LinkByName(end)
			must(err)
			must(netlink.LinkSetUp(l))
		}
	}
	_, err := netdev.Ethtool("out1", unix.ETHTOOL_SGRO, 1)
	must(err)
	out, err := netlink.LinkByName("out0")
	must(err)
	for _, text := range []string{"10.0.0.1/24", "fd00::1/64"} {
		addr, err := netlink.ParseAddr(text)
		must(err)
		addr.Flags |= unix.IFA_F_NODAD
		must(netlink.AddrAdd(out, addr))
	}
	for n := byte(11); n <= 13; n++ {
		for _, ip := range []net.IP{net.IPv4(10, 0, 0, n), net.ParseIP("fd00::" + string([]byte{'1', n - 11 + '1'}))} {
			must(netlink.NeighSet(&netlink.Neigh{
				LinkIndex: out.Attrs().Index, IP: ip, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, n}, State: netlink.NUD_PERMANENT,
			}))
		}
	}
	in, err := net.InterfaceByName("lb0")
	must(err)
	b.mac, b.client = in.HardwareAddr, index("lb1")
	b.to, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(err)
	b.from, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(err)
	must(unix.SetsockoptInt(b.from, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	must(unix.SetsockoptTimeval(b.from, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}))
	must(unix.Bind(b.from, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}), Ifindex: index("out1")}))
	done, ended := make(chan bool), make(chan bool)
	go func() { defer close(ended); b.receive(done) }()
	t.Cleanup(func() {
		close(done)
		<-ended
		unix.Close(b.to)
		unix.Close(b.from)
		b.expect(0, "", "detach", "--all")
	})
	return b
}

func index(name string) int {
	i, err := net.InterfaceByName(name)
	must(err)
	return i.Index
}

// receive counts the packets that arrive for each backend.
func (b *lbBed) receive(done chan bool) {
	frame := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(b.from, frame, 0)
		select {
		case <-done:
			return
		default:
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING || n < 54 || frame[0] != 2 || frame[4] != 0 {
			continue
		}
		var to netip.Addr
		switch binary.BigEndian.Uint16(frame[12:]) {
		case unix.ETH_P_IP:
			to = netip.AddrFrom4([4]byte(frame[30:34]))
		case unix.ETH_P_IPV6:
			to = netip.AddrFrom16([16]byte(frame[38:54]))
		}
		if s := to.String(); !strings.HasPrefix(s, "10.0.0.") && !strings.HasPrefix(s, "fd00::") {
			continue
		}
		b.mu.Lock()
		b.got[to]++
		if ipip := frame[34:]; to.Is4() && frame[23] == unix.IPPROTO_IPIP {
			b.clients[uint32(ipip[15])<<16|uint32(binary.BigEndian.Uint16(ipip[20:]))]++
		}
		b.mu.Unlock()
		b.all.Add(1)
	}
}

// arrived returns the packets that have arrived for a backend.
func (b *lbBed) arrived(backend string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[netip.MustParseAddr(backend)]
}

// send sends the first packet of a flow to a VIP.
func (b *lbBed) send(vip netip.AddrPort, client uint32) {
	src := netip.AddrFrom4([4]byte{203, 0, 113, byte(client >> 16)})
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 1, 1}, DstMAC: b.mac, EthernetType: layers.EthernetTypeIPv4}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	} = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: src.AsSlice(), DstIP: vip.Addr().AsSlice()}
	if vip.Addr().Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP("2001:db8:7::7"), DstIP: vip.Addr().AsSlice()}
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(client), DstPort: layers.TCPPort(vip.Port()), SYN: true, Window: 1000}
	must(tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp))
	must(unix.Sendto(b.to, buf.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: b.client}))
}

// load sends packets of new and old flows to a VIP until it is stopped, and returns their number.
func (b *lbBed) load(vip string) (stop func() uint64) {
	to := netip.MustParseAddrPort(vip)
	done, ended := make(chan bool), make(chan uint64, 1)
	go func() {
		var n uint32
		for {
			select {
			case <-done:
				ended <- uint64(n)
				return
			case <-time.After(200 * time.Microsecond):
				b.send(to, n/2) // two packets of each flow
				n++
			}
		}
	}()
	return func() uint64 { close(done); return <-ended }
}

func (b *lbBed) wait(what string, until func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if until() {
			return
		}
	}
	b.t.Fatalf("it does not come true: %s; packets: %v", what, b.got)
}

// reaches waits until new flows reach a backend.
func (b *lbBed) reaches(backend string) {
	b.t.Helper()
	before := b.arrived(backend)
	b.wait("packets reach "+backend, func() bool { return b.arrived(backend) > before })
}

// leaves waits until no more packets reach a backend.
func (b *lbBed) leaves(backend string) {
	b.t.Helper()
	b.wait("packets do not reach "+backend+" any more", func() bool {
		before, all := b.arrived(backend), b.all.Load()
		b.wait("packets arrive", func() bool { return b.all.Load() > all+200 })
		return b.arrived(backend) == before
	})
}

// expect runs a command line, and wants an exit status and a text.
func (b *lbBed) expect(status int, want string, args ...string) (stdout string) {
	b.t.Helper()
	got, stdout, stderr := culvert(b.t, args...)
	if got != status || !strings.Contains(stdout+stderr, want) || status != 0 && strings.Count(stderr, "\n") != 1 {
		b.t.Errorf("culvert %q: status %d, stdout %q, stderr %q; want status %d and %q", args, got, stdout, stderr, status, want)
	}
	return stdout
}

// lb runs 'culvert lb' with a line of arguments.
func (b *lbBed) lb(status int, want, line string) {
	b.t.Helper()
	b.expect(status, want, append([]string{"lb"}, strings.Fields(line)...)...)
}

func (b *lbBed) file(text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, "c.toml")
	must(os.WriteFile(path, []byte(text), 0o600))
	return path
}

// state returns the configured state of the load balancer.
func (b *lbBed) state() lb.State {
	b.t.Helper()
	all, err := datapath.ListHere()
	must(err)
	if len(all) != 1 {
		b.t.Fatalf("%d data planes", len(all))
	}
	defer all[0].Close()
	p, err := lbplane.View(all[0])
	must(err)
	s, err := lb.Load(p)
	must(err)
	return s
}

// backend returns a backend of a VIP, the zero value if there is none.
func (b *lbBed) backend(vip, addr string) lb.Backend {
	b.t.Helper()
	for _, v := range b.state().VIPs {
		for _, r := range v.Backends {
			if v.Service.String() == vip && r.Addr.String() == addr {
				return r
			}
		}
	}
	return lb.Backend{}
}
