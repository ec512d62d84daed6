// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/decap/decapplane"
	"culvert/internal/scion/scionpkt"
)

// arrivalForm is what becomes of packets to the service.
type arrivalForm int

const (
	// arrivesUnchanged packets go to the first backend as they are.
	arrivesUnchanged arrivalForm = iota
	// arrivesRewritten packets have the address of a backend in place of the service's.
	arrivesRewritten
	// arrivesSent packets are as they are behind the Ethernet address of a backend.
	arrivesSent
	// arrivesTunnelled packets are as they are in another packet, of IP in IP, to a backend.
	arrivesTunnelled
	// arrivesInUDP packets are as they are in one of UDP, as GUE has them in its variant 1.
	arrivesInUDP
)

// mostAttempts is how many times its share a backend may get.
const mostAttempts = 4

// verify sends packets of all clients, three of each, and looks at what arrives: each of them, as it should be, all of a
// client at one backend, and clients spread over the backends. Flows begin with a SYN if opens is set. Afterwards the
// balancer, which is attached, knows all flows.
func verify(ctx context.Context, p peer.Path, arrival arrivalForm, opens bool) error {
	frames := makePackets(clients, opens)
	frames = append(append(frames, makePackets(clients, false)...), makePackets(clients, false)...)
	arrived, err := capture(ctx, p, load.Addressed(frames, p.In.MAC, p.Source.MAC))
	if err != nil {
		return fmt.Errorf("see what the balancer does: %w", err)
	}
	at := map[netip.AddrPort]int{}
	count := map[int]int{}
	for _, f := range arrived {
		client, backend, err := arrival.read(f)
		if err != nil {
			return fmt.Errorf("the balancer does not do its work: a packet arrived as %x: %w", f, err)
		}
		if was, known := at[client]; known && was != backend {
			return fmt.Errorf("the balancer does not do its work: packets of %s arrived at %s and at %s", client, backendAddr(was),
				backendAddr(backend))
		}
		at[client] = backend
		count[backend]++
	}
	if len(arrived) != len(frames) || len(at) != clients {
		return fmt.Errorf("the balancer does not do its work: of %d packets of %d clients %d of %d arrived", len(frames), clients,
			len(arrived), len(at))
	}
	if arrival == arrivesUnchanged {
		return nil
	}
	for n := range backendCount {
		if count[n] > mostAttempts*len(frames)/backendCount {
			return fmt.Errorf("the balancer does not do its work: of %d packets %d went to %s", len(frames), count[n], backendAddr(n))
		}
	}
	if len(count) < backendCount*9/10 {
		return fmt.Errorf("the balancer does not do its work: of %d backends %d got packets", backendCount, len(count))
	}
	return nil
}

// capture sends frames once and returns what arrives at the far end that is not the kernel's own.
func capture(ctx context.Context, p peer.Path, frames [][]byte) (arrived [][]byte, err error) {
	listening, err := load.Listen(p.Sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, listening.Close()) }()
	gen, err := load.NewGenerator(load.GeneratorOptions{Frames: frames, From: p.Source, CPU: load.LastCPU()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, gen.Close()) }()
	// So few at once that they find room in all queues, however slow the machine is.
	const some = 200
	err = p.Sink.Netns.Do(func() error {
		fd, err := packetSocket(p.Sink)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for len(arrived) < len(frames) {
			if _, err := gen.Run(ctx, min(some, uint64(len(frames)-len(arrived)))); err != nil {
				return err
			}
			for range some {
				f, err := receive(fd)
				if err != nil || f == nil {
					return err
				}
				arrived = append(arrived, f)
			}
		}
		return nil
	})
	return arrived, err
}

// packetSocket gets frames with IPv4 of a device, on a thread in its namespace. Reading waits for a while.
func packetSocket(at load.End) (int, error) {
	const (
		patience = 5       // seconds
		room     = 8 << 20 // a packet counts as the page that it lies in, and more
	)
	protocol := uint16(unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: at.Index}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience}))
	}
	if err != nil {
		return -1, fmt.Errorf("watch what arrives at %s: %w", at.Name, err)
	}
	return fd, nil
}

// receive reads a frame, nil if none has come for long.
func receive(fd int) ([]byte, error) {
	buf := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		default:
			return buf[:max(n, 0)], err
		}
	}
}

// read takes a packet apart that has arrived: whose it is, and where.
func (a arrivalForm) read(f []byte) (client netip.AddrPort, backend int, err error) {
	const least = scionpkt.EthernetLen + scionpkt.IPv4Len + 4
	backend = int(f[5])
	if len(f) < least || backend >= backendCount || !bytes.Equal(f[:6], backendMAC(backend)) {
		return client, 0, errors.New("it has not the Ethernet address of a backend")
	}
	ip := f[scionpkt.EthernetLen:]
	want, is := vip4.Addr(), func(what netip.Addr) error {
		if dst := netip.AddrFrom4([4]byte(ip[16:20])); dst != what {
			return fmt.Errorf("it is for %s, not for %s", dst, what)
		}
		if ip[0] != 0x45 || load.OnesSum(ip[:scionpkt.IPv4Len]) != 0xffff {
			return errors.New("its header is wrong")
		}
		return nil
	}
	switch a {
	case arrivesRewritten:
		want = backendAddr(backend)
	case arrivesTunnelled, arrivesInUDP:
		if err := is(backendAddr(backend)); err != nil {
			return client, 0, err
		}
		if ip = a.inside(ip); len(ip) < scionpkt.IPv4Len+4 {
			return client, 0, errors.New("it holds no other packet")
		}
	}
	if err := is(want); err != nil {
		return client, 0, err
	}
	if !tcpRight(ip) {
		return client, 0, errors.New("it is no TCP packet of the right length and checksum")
	}
	src := netip.AddrFrom4([4]byte(ip[12:16]))
	return netip.AddrPortFrom(src, binary.BigEndian.Uint16(ip[scionpkt.IPv4Len:])), backend, nil
}

// inside is what a packet without IPv4 options holds, nil if it is not that kind of packet.
func (a arrivalForm) inside(ip []byte) []byte {
	const inIP, outer = 4, scionpkt.IPv4Len + scionpkt.UDPLen
	proto, rest := ip[9], ip[scionpkt.IPv4Len:]
	if a == arrivesTunnelled && proto == inIP {
		return rest
	}
	if a != arrivesInUDP || proto != unix.IPPROTO_UDP || len(ip) < outer {
		return nil
	}
	// The checksum is 0, as tunnels may leave it.
	port, length, sum := binary.BigEndian.Uint16(rest[2:]), binary.BigEndian.Uint16(rest[4:]), binary.BigEndian.Uint16(rest[6:])
	if port != decapplane.DefaultGUEPort || int(length) != len(rest) || sum != 0 {
		return nil
	}
	return ip[outer:]
}

// tcpRight tells whether an IPv4 packet without options is the TCP packet that was sent, with a right checksum.
func tcpRight(ip []byte) bool {
	tcp := ip[scionpkt.IPv4Len:]
	pseudo := append(append([]byte(nil), ip[12:20]...), 0, load.ProtoTCP, 0, byte(len(tcp)))
	return ip[9] == load.ProtoTCP && len(ip) == frameLen-scionpkt.EthernetLen && load.OnesSum(append(pseudo, tcp...)) == 0xffff
}
