// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// runs runs the program on the frames in turn, while another thread calls change at least changes times. It calls see with the
// outcome of each frame. An error of either ends the test. seen are counters that see increments: runs goes on until none of
// them is 0, but a minute at most.
func (b *bed) runs(frames [][]byte, changes int, seen []int, change func(n int) error, see func(frame int, action uint32, out []byte) error) {
	b.t.Helper()
	const packets, patience = 20_000, time.Minute
	end := time.Now().Add(patience)
	stop, changed := make(chan struct{}), make(chan error, 1)
	made := make(chan struct{})
	go func() {
		changed <- func() error {
			for n := 0; ; n++ {
				if n == changes {
					close(made)
				}
				select {
				case <-stop:
					return nil
				default:
				}
				if err := change(n); err != nil {
					return err
				}
			}
		}()
	}()
	var err error
	opts := ebpf.RunOptions{Context: bpfobj.XDPMD{IngressIfindex: uint32(b.in.Index)}, DataOut: make([]byte, 256)}
	for n := 0; err == nil; n++ {
		select {
		case err := <-changed:
			b.t.Fatal(err)
		case <-made:
			if n >= packets && (!slices.Contains(seen, 0) || time.Now().After(end)) {
				close(stop)
				b.must(<-changed)
				return
			}
		default:
		}
		frame := frames[n%len(frames)]
		opts.Data, opts.DataOut = frame, opts.DataOut[:256]
		opts.Context = bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(b.in.Index)}
		var action uint32
		if action, err = b.inst.Program().Run(&opts); err == nil {
			err = see(n%len(frames), action, opts.DataOut)
		}
	}
	close(stop)
	<-changed
	b.t.Fatal(err)
}

// TestBackendIsWhole changes a backend between two descriptions that have nothing in common. Each packet must be sent by one
// of them, never by a mix.
func TestBackendIsWhole(t *testing.T) {
	b := newBed(t, Options{})
	one := b.backend(1, 0, "10.0.0.11", func(backend *Backend) {
		backend.Hop.SrcMAC, backend.Hop.DstMAC = [6]byte{2, 1, 1, 1, 1, 1}, [6]byte{2, 1, 1, 1, 1, 2}
	})
	two := one
	two.Addr, two.Encap, two.GUEPort, two.Source = netip.MustParseAddr("fd00:ffff:ffff:ffff:ffff:ffff:ffff:22"), GUE, 7070, netip.MustParsePrefix("fd77:777::/96")
	two.Hop.SrcMAC, two.Hop.DstMAC, two.Hop.VLAN = [6]byte{6, 2, 2, 2, 2, 1}, [6]byte{6, 2, 2, 2, 2, 2}, 0x1000|77
	b.vip(0, "192.0.2.1:80", 6, []Backend{one})
	frame := b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.TCP{ACK: true}, []byte("payload"))
	// The frames to expect, from a backend that does not change.
	b.must(b.plane.SetBackend(one))
	asOne := b.expect(frame, "fwd lb-new")
	b.must(b.plane.SetBackend(two))
	asTwo := b.expect(frame, "fwd lb-flow")
	if bytes.Equal(asOne[:14], asTwo[:14]) || len(asOne) == len(asTwo) {
		t.Fatal("both backends get the same frame")
	}
	var seen [2]int
	b.runs([][]byte{frame}, 100_000, seen[:], func(n int) error {
		return b.plane.SetBackend([]Backend{one, two}[n%2])
	}, func(_ int, _ uint32, out []byte) error {
		switch {
		case bytes.Equal(out, asOne):
			seen[0]++
		case bytes.Equal(out, asTwo):
			seen[1]++
		default:
			return fmt.Errorf("a mix of both: %x\n%x\n%x", out, asOne, asTwo)
		}
		return nil
	})
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("packets to the one and the other: %v", seen)
	}
}

// TestDeleteVIP deletes a VIP and gives its number to another one, over and over. Packets of a third VIP must not be
// affected. Packets of the first two get to the VIP's own backend or are left to the kernel.
func TestDeleteVIP(t *testing.T) {
	b := newBed(t, Options{})
	backends := []Backend{b.backend(1, 0, "10.0.0.11"), b.backend(2, 1, "10.0.0.12"), b.backend(3, 1, "10.0.0.13")}
	vips := []string{"192.0.2.1:80", "192.0.2.2:80", "192.0.2.3:80"}
	var frames [][]byte
	for n, vip := range vips {
		frames = append(frames, b.packet(fmt.Sprint("203.0.113.7:", 1000+n), vip, &layers.TCP{SYN: true}, nil))
		if n < 2 {
			b.vip(uint32(n), vip, 6, backends[n:n+1])
		}
	}
	key := func(vip string) VIPKey {
		ap := netip.MustParseAddrPort(vip)
		return VIPKey{Addr: ap.Addr(), Proto: 6, Port: ap.Port()}
	}
	rings := make([][]BackendID, 3)
	for n := 1; n < 3; n++ {
		for range b.plane.Options().RingSize {
			rings[n] = append(rings[n], backends[n].ID)
		}
	}
	seen := make([]int, len(vips))
	b.runs(frames, 100, seen, func(n int) error {
		from, to := 1+n%2, 2-n%2
		return errors.Join(b.plane.DeleteVIP(key(vips[from])), b.plane.SetRing(1, rings[to]),
			b.plane.SetVIP(key(vips[to]), VIP{Number: 1}))
	}, func(n int, action uint32, out []byte) error {
		if action == testbed.XDPPass && n > 0 && bytes.Equal(out, frames[n]) {
			return nil
		}
		seen[n]++
		if len(out) < 34 || action != testbed.XDPRedirect || netip.AddrFrom4([4]byte(out[30:34])) != backends[n].Addr {
			return fmt.Errorf("a packet to %s came out with %d: %x", vips[n], action, out)
		}
		return nil
	})
	if seen[0] == 0 || seen[1] == 0 || seen[2] == 0 {
		t.Errorf("packets to their backends: %v", seen)
	}
}

// TestFlowsUnderLoad lists flows while the programs replace them by others. Each flow must have the backend of its client,
// never that of another one.
func TestFlowsUnderLoad(t *testing.T) {
	const count = 251
	b := newBed(t, Options{RingSize: count, Flows: 14, InsertRate: 1_000_000_000})
	var backends []Backend
	for n := range uint32(count) {
		backends = append(backends, b.backend(n, 0, fmt.Sprintf("10.1.0.%d", n)))
	}
	b.vip(0, "192.0.2.1:80", 6, backends)
	r := rand.New(rand.NewPCG(9, 10))
	var clients []netip.AddrPort
	var frames [][]byte
	for range 2000 {
		clients = append(clients, randomClient(r, false))
		frames = append(frames, b.packet(clients[len(clients)-1].String(), "192.0.2.1:80", &layers.TCP{SYN: true}, nil))
	}
	o := b.plane.Options()
	check := func(f Flow) error {
		if want := backends[o.Position(VIP{}, 6, f.Client, f.Port)].ID; f.VIP != 0 || f.Backend != want || f.State != "new" {
			return fmt.Errorf("a mix of two flows: %+v, its backend is %v", f, want)
		}
		return nil
	}
	found, seen := 0, make(map[netip.AddrPort]bool)
	b.runs(frames, 100_000, nil, func(n int) (err error) {
		listErr := b.plane.Flows(func(f Flow) bool {
			seen[f.Client] = true
			err = check(f)
			return err == nil
		})
		f, ok, findErr := b.plane.FindFlow(0, clients[n%len(clients)], 80)
		if ok {
			found++
			err = errors.Join(err, check(f))
		}
		return errors.Join(err, listErr, findErr)
	}, func(int, uint32, []byte) error { return nil })
	if len(seen) < 100 {
		t.Errorf("%d flows listed, %d found", len(seen), found)
	}
}

// TestRingUnderLoad replaces the ring of a VIP with 1,000 backends while packets of known and of new flows come in. No packet
// may be lost, and known flows keep their backends.
func TestRingUnderLoad(t *testing.T) {
	const count = 1000
	b := newBed(t, Options{RingSize: DefaultRingSize})
	s := testbed.AddSink(t, "out0p")
	var backends []Backend
	for n := range uint32(count) {
		backends = append(backends, b.backend(n, 0, fmt.Sprintf("10.1.%d.%d", n>>8, n&255)))
	}
	b.vip(0, "192.0.2.1:80", 6, backends)
	var frames [][]byte
	for n := range 500 {
		frames = append(frames, b.packet(fmt.Sprintf("203.0.113.7:%d", 1000+n), "192.0.2.1:80", &layers.TCP{ACK: true}, nil))
	}
	snd := testbed.StartSender(t, testbed.Device(t, "lb0p"), s, frames...)
	ring, err := b.plane.Ring(0)
	b.must(err)
	var longest time.Duration
	for range 10 {
		before, err := s.Packets()
		b.must(err)
		ring = append(ring[1:], ring[0]) // each position gets another backend
		start := time.Now()
		b.must(b.plane.SetRing(0, ring))
		longest = max(longest, time.Since(start))
		b.must(s.Await(before + testbed.Window + 1))
	}
	b.must(snd.Stop())
	sent := snd.Sent()
	b.must(s.Await(sent))
	b.checkSent(s, sent, 0)
	var flows uint64
	for n := range uint32(count) {
		traffic, err := b.plane.Traffic(n)
		b.must(err)
		flows += traffic.Flows
	}
	if want := min(sent, uint64(len(frames))); flows != want {
		t.Errorf("%d flows taken in, want %d", flows, want)
	}
	t.Logf("a ring of %d backends was exchanged in at most %v while %d packets went through", count, longest, sent)
}

// checkSent wants all packets sent to have arrived and to be counted once. tested is the number of packets of test runs,
// which are counted but do not arrive.
func (b *bed) checkSent(s *testbed.Sink, sent, tested uint64) {
	b.t.Helper()
	arrived, err := s.Packets()
	b.must(err)
	port, by, total := testbed.Counted(b.t, b.inst, "lb0")
	if arrived != sent || total != sent+tested || by["fwd lb-flow"]+by["fwd lb-new"] != total {
		b.t.Errorf("%d packets sent, %d arrived, counted %v", sent, arrived, by)
	}
	for name, n := range port.Losses {
		if n != 0 {
			b.t.Errorf("%d packets lost: %s", n, name)
		}
	}
}

// TestSwapUnderLoad attaches again and again, with flow tables and rings of other sizes, while packets of known flows come in.
// No packet may be lost or get to the backend that the rings have for new flows.
func TestSwapUnderLoad(t *testing.T) {
	w := newWorld(t, 200, Options{Flows: 5000})
	fresh := w.backend(9, 0, "10.0.0.99")
	w.backends = append(w.backends, fresh)
	w.must(w.fill(w.plane))
	s := testbed.AddSink(t, "out0p")
	var frames [][]byte
	for _, c := range w.clients {
		frames = append(frames, w.packet(c.String(), worldVIP, &layers.TCP{ACK: true}, nil))
	}
	snd := testbed.StartSender(t, testbed.Device(t, "lb0p"), s, frames...)
	for n, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.Flows = 20_000 },
		func(o *Options) { o.Flows, o.RingSize = 3000, 23 },
		func(o *Options) { o.Flows = 4000 },
		func(o *Options) { o.RingSize = 17 },
	} {
		before, err := s.Packets()
		w.must(err)
		w.attach(change, func(o *Options) { o.Fill = w.fill })
		if err := s.Await(before + testbed.Window + 1); err != nil {
			t.Errorf("after swap %d: %v", n, err)
		}
	}
	w.must(snd.Stop())
	sent := snd.Sent()
	w.must(s.Await(sent))
	w.checkSent(s, sent, w.sent)
	if traffic, err := w.plane.Traffic(fresh.ID.Number()); err != nil || traffic.Packets != 0 {
		t.Errorf("known flows have got to another backend: %+v, %v", traffic, err)
	}
	t.Logf("%d packets", sent)
}

// editorEnv is an environment variable. It makes this test binary change the load balancer of its network namespace as often
// as its value says.
const editorEnv = "CULVERT_TEST_LB_EDIT"

func runEditor(times string) int {
	n, err := strconv.Atoi(times)
	inst, openErr := datapath.OpenHere("lb")
	if err = errors.Join(err, openErr); err != nil {
		fmt.Println(err)
		return 1
	}
	defer inst.Close()
	for range n {
		if err := Edit(inst, countUp); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// countUp adds 1 to the number in the state, and writes it as the GUE port of backend 1 too.
func countUp(p *Plane) error {
	b, err := p.State()
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(b)) // the first state is empty
	backend, err := p.Backend(1)
	if err != nil {
		return err
	}
	backend.GUEPort = uint16(n + 1)
	return errors.Join(p.SetBackend(backend), p.SetState([]byte(strconv.Itoa(n+1))))
}

func startEditor(t *testing.T, times int) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), editorEnv+"="+strconv.Itoa(times))
	c.Stdout = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(c) })
	return c
}

// TestEditors has three processes change the load balancer at once. No change may be lost.
func TestEditors(t *testing.T) {
	const times = 60
	b := newBed(t, Options{})
	b.backend(1, 0, "10.0.0.11")
	editors := []*exec.Cmd{startEditor(t, times), startEditor(t, times)}
	for range times {
		b.must(Edit(b.inst, countUp))
	}
	for _, c := range editors {
		b.must(c.Wait())
	}
	state, err := b.plane.State()
	b.must(err)
	backend, err := b.plane.Backend(1)
	b.must(err)
	if want := strconv.Itoa(3 * times); string(state) != want || backend.GUEPort != 3*times {
		t.Errorf("the state is %s, the backend says %d, want %s", state, backend.GUEPort, want)
	}
}

// TestEditorDies kills processes while they change the load balancer. The next process must go on from the state before.
func TestEditorDies(t *testing.T) {
	b := newBed(t, Options{})
	b.backend(1, 0, "10.0.0.11")
	for n := range 5 {
		serial, err := b.plane.Serial()
		b.must(err)
		c := startEditor(t, 1<<30)
		for end := time.Now().Add(testbed.Patience); ; time.Sleep(time.Millisecond) {
			now, err := b.plane.Serial()
			b.must(err)
			if now > serial+uint64(n) {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it changes nothing")
			}
		}
		kill(c)
		before, err := b.plane.State()
		b.must(err)
		b.must(Edit(b.inst, countUp))
		after, err := b.plane.State()
		b.must(err)
		was, _ := strconv.Atoi(string(before))
		if is, err := strconv.Atoi(string(after)); err != nil || is != was+1 {
			t.Errorf("the state is %s after %s, %v", after, before, err)
		}
	}
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}
