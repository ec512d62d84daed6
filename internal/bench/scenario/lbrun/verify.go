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

// arrivalForm is the form in which packets to the service arrive at a backend.
type arrivalForm int

const (
	// arrivesUnchanged packets arrive unchanged at the first backend.
	arrivesUnchanged arrivalForm = iota
	// arrivesRewritten packets have the address of a backend instead of the VIP.
	arrivesRewritten
	// arrivesSent packets are unchanged but for the Ethernet address of a backend.
	arrivesSent
	// arrivesTunnelled packets are unchanged within an IP-in-IP packet to a backend.
	arrivesTunnelled
	// arrivesInUDP packets are unchanged within a UDP packet to a backend (GUE, variant 1).
	arrivesInUDP
)

// maxShare bounds the packets that a backend may get, as a multiple of an even share.
const maxShare = 4

// verify sends three packets of each client and checks that all arrive in the right form, those of each client at one backend,
// and those of all clients spread over the backends. If withSYN is set flows begin with a SYN. The balancer must be attached.
// Afterwards it knows all flows.
func verify(ctx context.Context, p peer.Path, arrival arrivalForm, withSYN bool) error {
	frames := makePackets(clients, withSYN)
	frames = append(append(frames, makePackets(clients, false)...), makePackets(clients, false)...)
	arrived, err := capture(ctx, p, load.Addressed(frames, p.In.MAC, p.Source.MAC))
	if err != nil {
		return fmt.Errorf("verify the balancer: %w", err)
	}
	at := map[netip.AddrPort]int{}
	count := map[int]int{}
	for _, f := range arrived {
		client, backend, err := arrival.read(f)
		if err != nil {
			return fmt.Errorf("the balancer does not do its work: a packet arrived as %x: %w", f, err)
		}
		if first, known := at[client]; known && first != backend {
			return fmt.Errorf("the balancer does not do its work: packets of %s arrived at %s and at %s", client, backendAddr(first),
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
		if count[n] > maxShare*len(frames)/backendCount {
			return fmt.Errorf("the balancer does not do its work: of %d packets %d went to %s", len(frames), count[n], backendAddr(n))
		}
	}
	if len(count) < backendCount*9/10 {
		return fmt.Errorf("the balancer does not do its work: of %d backends %d got packets", backendCount, len(count))
	}
	return nil
}

// capture sends frames once and returns the IPv4 frames that arrive at the sink.
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
	// Frames are sent in parts that fit into all queues, on any machine. What the kernel loses nevertheless, on a machine that has other
	// work, is made up for, a few times: whether a balancer loses packets is measured later.
	const part, mostLosses = 200, 3
	err = p.Sink.Netns.Do(func() error {
		fd, err := packetSocket(p.Sink)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for losses := 0; len(arrived) < len(frames); {
			sent := min(part, len(frames)-len(arrived))
			if _, err := gen.Run(ctx, uint64(sent)); err != nil {
				return err
			}
			for n := range sent {
				f, err := receive(fd)
				if err != nil {
					return err
				}
				if f == nil {
					if losses += sent - n; losses > mostLosses {
						return nil
					}
					break
				}
				arrived = append(arrived, f)
			}
		}
		return nil
	})
	return arrived, err
}

// packetSocket opens a socket for the IPv4 frames that arrive at a device, on a thread in its namespace. Reads have a timeout.
func packetSocket(at load.End) (int, error) {
	const (
		timeout = 5       // seconds
		room    = 8 << 20 // bytes; each packet takes more than the page that holds it
	)
	protocol := uint16(unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: at.Index}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: timeout}))
	}
	if err != nil {
		return -1, fmt.Errorf("capture frames at %s: %w", at.Name, err)
	}
	return fd, nil
}

// receive reads a frame. It returns nil if none has arrived within the socket's timeout.
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

// read parses a frame that has arrived. It returns the client that sent the packet, and the backend that got it. It returns an
// error if the packet does not have the form a.
func (a arrivalForm) read(f []byte) (client netip.AddrPort, backend int, err error) {
	const shortest = scionpkt.EthernetLen + scionpkt.IPv4Len + 4
	backend = int(f[5])
	if len(f) < shortest || backend >= backendCount || !bytes.Equal(f[:6], backendMAC(backend)) {
		return client, 0, errors.New("it has not the Ethernet address of a backend")
	}
	ip := f[scionpkt.EthernetLen:]
	want := vip4.Addr()
	checkHeader := func(want netip.Addr) error {
		if dst := netip.AddrFrom4([4]byte(ip[16:20])); dst != want {
			return fmt.Errorf("it is for %s, not for %s", dst, want)
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
		if err := checkHeader(backendAddr(backend)); err != nil {
			return client, 0, err
		}
		if ip = a.inside(ip); len(ip) < scionpkt.IPv4Len+4 {
			return client, 0, errors.New("it holds no other packet")
		}
	}
	if err := checkHeader(want); err != nil {
		return client, 0, err
	}
	if !isValidTCP(ip) {
		return client, 0, errors.New("it is no TCP packet of the right length and checksum")
	}
	src := netip.AddrFrom4([4]byte(ip[12:16]))
	return netip.AddrPortFrom(src, binary.BigEndian.Uint16(ip[scionpkt.IPv4Len:])), backend, nil
}

// inside is the inner packet of an IPv4 packet without options, nil if it is not encapsulated in form a.
func (a arrivalForm) inside(ip []byte) []byte {
	const inIP, outer = 4, scionpkt.IPv4Len + scionpkt.UDPLen
	proto, rest := ip[9], ip[scionpkt.IPv4Len:]
	if a == arrivesTunnelled && proto == inIP {
		return rest
	}
	if a != arrivesInUDP || proto != unix.IPPROTO_UDP || len(ip) < outer {
		return nil
	}
	// Tunnels may leave the checksum 0, and this one does.
	port, length, sum := binary.BigEndian.Uint16(rest[2:]), binary.BigEndian.Uint16(rest[4:]), binary.BigEndian.Uint16(rest[6:])
	if port != decapplane.DefaultGUEPort || int(length) != len(rest) || sum != 0 {
		return nil
	}
	return ip[outer:]
}

// isValidTCP tells whether an IPv4 packet without options is a TCP packet of the length that was sent, with a valid checksum.
func isValidTCP(ip []byte) bool {
	tcp := ip[scionpkt.IPv4Len:]
	pseudo := append(append([]byte(nil), ip[12:20]...), 0, load.ProtoTCP, 0, byte(len(tcp)))
	return ip[9] == load.ProtoTCP && len(ip) == frameLen-scionpkt.EthernetLen && load.OnesSum(append(pseudo, tcp...)) == 0xffff
}
