// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// States as a BFD packet carries them (RFC 5880, 4.1).
const (
	bfdAdminDown = 0
	bfdDown      = 1
	bfdUp        = 3
)

// bfdWire sends and receives whole frames at the far end of a link that BFD watches.
type bfdWire struct {
	t       *testing.T
	fd      int
	ifIndex int
}

func newBFDWire(t *testing.T, l *lab.Lab, ns, iface string) *bfdWire {
	t.Helper()
	w := &bfdWire{t: t, ifIndex: end(t, l, ns, iface).Index}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	check(t, l.Do(ns, func() (err error) {
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(w.fd) })
	check(t, unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: w.ifIndex}))
	check(t, unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
	return w
}

// bfdAt returns the offset of the BFD packet in a frame, 0 if the frame has none.
func bfdAt(frame []byte) int {
	const scion = scionpkt.EthernetLen + scionpkt.IPv4Len + scionpkt.UDPLen
	if len(frame) < scion+12 || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[scion+4] != 203 {
		return 0
	}
	if at := scion + 4*int(frame[scion+5]); at+24 <= len(frame) {
		return at
	}
	return 0
}

// next waits for a BFD packet in state Up, sent or received by this end of the wire.
func (w *bfdWire) next(sent bool) []byte {
	w.t.Helper()
	buf := make([]byte, 2000)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		check(w.t, err)
		outgoing := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
		if at := bfdAt(buf[:n]); at > 0 && outgoing == sent && buf[at+1]>>6 == bfdUp {
			return append([]byte{}, buf[:n]...)
		}
	}
	w.t.Fatalf("no BFD packet of a session that is up within %s", patience)
	return nil
}

// forge returns a frame that the far end has sent with another state and other discriminators.
func forge(frame []byte, state uint8, myDisc, yourDisc uint32) []byte {
	f := append([]byte{}, frame...)
	at := bfdAt(f)
	f[at+1] = f[at+1]&0x3f | state<<6
	binary.BigEndian.PutUint32(f[at+4:], myDisc)
	binary.BigEndian.PutUint32(f[at+8:], yourDisc)
	scionpkt.FixOuter(f)
	return f
}

// fragment cuts a frame into two IPv4 fragments, which the fast path leaves to the kernel.
func fragment(frame []byte) [][]byte {
	const first = 64 // bytes of the datagram, a multiple of 8
	head, datagram := frame[:scionpkt.EthernetLen+scionpkt.IPv4Len], frame[scionpkt.EthernetLen+scionpkt.IPv4Len:]
	var parts [][]byte
	for n, part := range [][]byte{datagram[:first], datagram[first:]} {
		f := append(append([]byte{}, head...), part...)
		ip := f[scionpkt.EthernetLen:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], 0xb0fd)
		binary.BigEndian.PutUint16(ip[6:], []uint16{0x2000, first / 8}[n])
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^scionpkt.Sum(ip[:scionpkt.IPv4Len]))
		parts = append(parts, f)
	}
	return parts
}

func (w *bfdWire) send(frames ...[]byte) {
	w.t.Helper()
	for _, f := range frames {
		check(w.t, unix.Sendto(w.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: w.ifIndex}))
	}
}

// metric returns the sum of the router's series that begin with prefix.
func metric(t *testing.T, l *lab.Lab, as lab.AS, prefix string) (sum float64) {
	t.Helper()
	series, err := scrape(l, as.NS, as.RouterAPI.String(), prefix)
	check(t, err)
	for _, s := range series {
		v, err := strconv.ParseFloat(s[strings.LastIndexByte(s, ' ')+1:], 64)
		check(t, err)
		sum += v
	}
	return sum
}

// bfdChanges returns how often the session of an interface has changed its state.
func bfdChanges(t *testing.T, l *lab.Lab, as lab.AS, id string) float64 {
	t.Helper()
	return metric(t, l, as, `router_bfd_state_changes_total{interface="`+id+`"`)
}

// TestForgedBFD sends BFD packets from the addresses of a link whose session is up, as an attacker on the wire can. Without
// the discriminator that this router has given the far end, they change nothing, and each is counted. With it, an AdminDown
// takes the session down, as the far end may, and the session comes back because the far end goes on.
func TestForgedBFD(t *testing.T) {
	// Slow enough that no session times out however busy the machine is.
	l := up(t, "scion3", lab.Options{Name: "bff", BFD: 2 * time.Second})
	as2, err := l.AS("as2")
	check(t, err)
	p := plane(t, l, "as2")
	link := linkIndex(t, p, "203")
	isUp := func() bool {
		states, err := scionplane.Of(p).LinkStates()
		check(t, err)
		now, err := interfaceUp(l, as2, "203")
		check(t, err)
		return now && states[link].Up
	}
	wait(t, "the session", isUp)
	w := newBFDWire(t, l, "as3", "to-as2")
	valid := w.next(true)
	myDisc, yourDisc := binary.BigEndian.Uint32(valid[bfdAt(valid)+4:]), binary.BigEndian.Uint32(valid[bfdAt(valid)+8:])

	before, changes := count(t, p, "to-as3"), bfdChanges(t, l, as2, "203")
	const each = 20
	forged := [][]byte{
		forge(valid, bfdAdminDown, myDisc, yourDisc+1),
		forge(valid, bfdDown, myDisc, yourDisc+1),
		forge(valid, bfdUp, myDisc, yourDisc+1),
		forge(valid, bfdUp, myDisc, 0),
		forge(valid, bfdAdminDown, myDisc+1, 0),
		forge(valid, bfdDown, myDisc+1, 0),
	}
	for range each {
		w.send(forged...)
	}
	sent := uint64(each * len(forged))
	wait(t, "the fast path to have seen them", func() bool {
		moved := count(t, p, "to-as3").since(before)
		return moved["drop scion-bfd"] == sent || !isUp()
	})
	// The fast path leaves fragments to the slow path.
	w.send(fragment(forged[0])...)
	w.send(fragment(forged[4])...)
	const refused = `culvert_scion_bfd_dropped_packets_total{link="203",reason="discriminator"}`
	wait(t, "the slow path to have seen them", func() bool { return metric(t, l, as2, refused) == 2 || !isUp() })
	// Nothing may have changed once the far end's next packets have arrived.
	const received = `router_bfd_received_packets_total{interface="203"`
	heard := metric(t, l, as2, received)
	wait(t, "the far end's next packets", func() bool { return metric(t, l, as2, received) >= heard+4 || !isUp() })
	if now := bfdChanges(t, l, as2, "203"); !isUp() || now != changes {
		t.Fatalf("forged packets: link up %v, %v changes of state", isUp(), now-changes)
	}
	if moved := count(t, p, "to-as3").since(before); moved["drop scion-bfd"] != sent {
		t.Errorf("%d forged packets sent, counted %v", sent, moved.only("scion-bfd"))
	}
	if out := culvert(t, l, "as2", "status"); !strings.Contains(out, "scion-bfd") {
		t.Errorf("status does not show the forged packets:\n%s", out)
	}

	w.send(forge(valid, bfdAdminDown, myDisc, yourDisc))
	wait(t, "the session to go down", func() bool { return bfdChanges(t, l, as2, "203") > changes })
	wait(t, "the session to come back", isUp)
}
