// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(holderEnv); role != "" {
		os.Exit(hold(role))
	}
	if times := os.Getenv(balanceEditorEnv); times != "" {
		os.Exit(editBalance(times))
	}
	testbed.Main(m)
}

// mustAttach attaches for the length of the test.
func mustAttach(t *testing.T, c Config, interfaces ...string) *Instance {
	t.Helper()
	inst, err := Attach(Options{Name: "br1", Interfaces: interfaces, Parts: []Part{NewSCIONPart(c)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}

var (
	testIA  = addr.MustParseIA("1-ff00:0:110")
	testKey = Key{1, 2, 3}
)

// testConfig has an internal link and external links with the given interface IDs.
func testConfig(ids ...uint16) Config {
	c := Config{
		LocalIA:   uint64(testIA),
		Links:     []Link{{Name: "internal", Local: netip.MustParseAddrPort("10.0.0.1:30042")}},
		PortStart: 31000,
		PortEnd:   32767,
	}
	for n, id := range ids {
		c.Links = append(c.Links, Link{
			Name:       strconv.Itoa(int(id)),
			Scope:      ScopeExternal,
			IfID:       id,
			NeighborIA: uint64(testIA) + uint64(id),
			Local:      netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 1}), 50000),
			Remote:     netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 2}), 50000),
		})
		c.Interfaces = append(c.Interfaces, Interface{ID: id, Link: n + 1, Type: LinkCore})
	}
	return c
}

func linkIndex(t *testing.T, c Config, name string) int {
	t.Helper()
	for n, l := range c.Links {
		if l.Name == name {
			return n
		}
	}
	t.Fatalf("no link %s", name)
	return 0
}

// transitFrame enters by a device at interface 1 and, if the key is right, leaves at interface 2.
func transitFrame(t *testing.T, in *net.Interface, key Key) []byte {
	t.Helper()
	return sizedTransitFrame(t, in, key, 64)
}

// sizedTransitFrame is transitFrame with a payload of the given number of bytes, and with changes.
func sizedTransitFrame(t *testing.T, in *net.Interface, key Key, size int, changes ...func(*scionpkt.Spec)) []byte {
	t.Helper()
	c := testConfig(1)
	hop := func(in, out uint16) scionpkt.Hop {
		return scionpkt.Hop{ConsIngress: in, ConsEgress: out, ExpTime: 63}
	}
	own := hop(1, 2)
	own.Own = true
	s := scionpkt.Spec{
		Outer:    scionpkt.Outer{DstMAC: [6]byte(in.HardwareAddr), Src: c.Links[1].Remote, Dst: c.Links[1].Local},
		External: true,
		Key:      key,
		SrcIA:    testIA + 1,
		DstIA:    testIA + 2,
		SrcHost:  addr.MustParseHost("192.0.2.1"),
		DstHost:  addr.MustParseHost("192.0.2.2"),
		Segments: []scionpkt.Segment{{
			ConsDir:   true,
			Timestamp: uint32(time.Now().Add(-time.Minute).Unix()),
			Beta:      7,
			Hops:      []scionpkt.Hop{hop(0, 5), own, hop(6, 0)},
		}},
		CurrHF:  1,
		Payload: scionpkt.Payload{Size: size, SrcPort: 1000, DstPort: 2000, HopByHop: -1, EndToEnd: -1},
	}
	for _, change := range changes {
		change(&s)
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openWay makes interface 2 lead out of a device and loads the key.
func openWay(t *testing.T, inst *Instance, out *net.Interface) {
	t.Helper()
	n := linkIndex(t, inst.Config(), "2")
	hop := NextHop{IfIndex: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	if err := inst.SetLinkNextHop(n, hop); err != nil {
		t.Fatal(err)
	}
	if err := inst.SetLinkUp(n, true); err != nil {
		t.Fatal(err)
	}
	if err := inst.AddKey(0, testKey); err != nil {
		t.Fatal(err)
	}
}

// holderEnv makes this test binary attach the interfaces it names, say so, and wait to be killed.
const holderEnv = "CULVERT_TEST_HOLD"

func hold(interfaces string) int {
	inst, err := Attach(Options{Name: "br1", Interfaces: strings.Split(interfaces, ","), Parts: []Part{NewSCIONPart(testConfig(1, 2))}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("attached")
	time.Sleep(time.Hour)
	inst.Close()
	return 0
}

// startHolder returns a process that serves br1 in this network namespace.
func startHolder(t *testing.T, interfaces string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderEnv+"="+interfaces)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(c) })
	said := make([]byte, 1024)
	n, err := out.Read(said)
	if s := strings.TrimSpace(string(said[:n])); s != "attached" {
		t.Fatalf("the other process said %q, %v", s, err)
	}
	return c
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}
