// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

const beginName = "node-begin-test"

// beginBed is a namespace with a client's interface, and one that backends are behind.
type beginBed struct {
	t  *testing.T
	in *net.Interface
}

func newBeginBed(t *testing.T) *beginBed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	for _, args := range []string{
		"link add nb0 type veth peer name nb1", "link add nb2 type veth peer name nb3", "link set nb0 up", "link set nb2 up", "link set nb3 up",
		"addr add 10.0.0.1/24 dev nb2", "neigh replace 10.0.0.11 lladdr 02:00:00:00:00:11 dev nb2 nud permanent",
		"neigh replace 10.0.0.12 lladdr 02:00:00:00:00:12 dev nb2 nud permanent",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	// Frames that are redirected into a veth arrive while its peer has NAPI on.
	if out, err := exec.Command("ethtool", "-K", "nb3", "gro", "on").CombinedOutput(); err != nil {
		t.Fatalf("ethtool: %v: %s", err, out)
	}
	in, err := net.InterfaceByName("nb0")
	if err != nil {
		t.Fatal(err)
	}
	return &beginBed{t, in}
}

// errBehind is what a stage behind the load balancer fails with.
var errBehind = errors.New("a stage behind fails")

// attach attaches what a file says. With failed, a stage behind the load balancer fails: failed gets what the load balancer of
// the new program is left with.
func (b *beginBed) attach(text string, failed func(lb.State)) error {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("interfaces = [\"nb0\"]\n"+text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	n, err := stages.Load(path)
	b.must(err)
	on := n.Interfaces
	n.Interfaces = nil // interfaces that are given beside the file come to light late
	u := &up{file: stage.File{Path: path, Node: n}, name: beginName, on: on}
	balancer, err := lbstage.Compile(u.file)
	b.must(err)
	rules, err := filterstage.Compile(u.file)
	b.must(err)
	running, err := datapath.OpenHere(beginName)
	b.must(err)
	b.must(balancer.Check(stage.Situation{Interfaces: on, Running: running}))
	if running != nil {
		running.Close()
	}
	start := stage.Start{Log: slog.New(slog.DiscardHandler), Out: io.Discard}
	for _, p := range []stage.Plan{rules, balancer} {
		prepared, err := p.Prepare(b.t.Context(), start)
		b.must(err)
		u.prepared = append(u.prepared, prepared)
	}
	if failed != nil {
		u.prepared[1] = failing{u.prepared[1], func(inst *datapath.Instance) { failed(b.state(inst)) }}
	}
	defer u.close()
	if err := u.attach(b.t.Context(), start, false); err != nil {
		return err
	}
	inst := u.inst
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if missing, err := lb.Resolve(ctx, inst); err != nil || len(missing) > 0 {
		b.t.Fatalf("no way to %v: %v", missing, err)
	}
	return nil
}

// failing is a stage with one behind it whose Commit fails. It looks at what the stage leaves then.
type failing struct {
	stage.Prepared
	failed func(*datapath.Instance)
}

func (f failing) Commit(ctx context.Context, inst *datapath.Instance, rest func() error) error {
	err := f.Prepared.Commit(ctx, inst, func() error { return errors.Join(rest(), errBehind) })
	f.failed(inst)
	return err
}

func (b *beginBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *beginBed) open() *datapath.Instance {
	b.t.Helper()
	inst, err := datapath.OpenHere(beginName)
	b.must(err)
	return inst
}

func (b *beginBed) state(inst *datapath.Instance) lb.State {
	b.t.Helper()
	plane, err := lbplane.View(inst)
	b.must(err)
	s, err := lb.Load(plane)
	b.must(err)
	return s
}

// picture is all that the programs know of rules, VIPs and backends.
func (b *beginBed) picture() string {
	b.t.Helper()
	inst := b.open()
	defer inst.Close()
	plane, err := lbplane.View(inst)
	b.must(err)
	vips, err := plane.VIPs()
	b.must(err)
	rules, err := filterplane.Read(inst)
	b.must(err)
	text := fmt.Sprintf("%+v\n%+v\n", rules.Rules, vips)
	for k, v := range vips {
		ring, err := plane.Ring(v.Number)
		b.must(err)
		text += fmt.Sprintf("%v: %v\n", k, ring)
	}
	for n := range uint32(8) {
		m, err := plane.Backend(n)
		b.must(err)
		if m.Used {
			text += fmt.Sprintf("%+v\n", m)
		}
	}
	return text
}

// send puts a segment of a client's through, and tells what it was counted as and whom it went to.
func (b *beginBed) send(client int) string {
	b.t.Helper()
	inst := b.open()
	defer inst.Close()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IPv4(198, 51, 100, byte(client)), DstIP: net.IPv4(192, 0, 2, 1)}
	tcp := &layers.TCP{SrcPort: 1000, DstPort: 80, ACK: true}
	b.must(tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.in.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}, ip, tcp))
	count := func() map[string]uint64 {
		ports, err := inst.Ports()
		b.must(err)
		all := make(map[string]uint64)
		for _, r := range ports[0].Reasons {
			all[r.Verdict+" "+r.Name] = r.Packets
		}
		return all
	}
	before := count()
	_, out, err := inst.TestRun(buf.Bytes(), "nb0")
	b.must(err)
	for reason, n := range count() {
		if n != before[reason] {
			return fmt.Sprintf("%s to %x", reason, out[:6])
		}
	}
	b.t.Fatal("a packet was not counted")
	return ""
}

const (
	beginVIP     = "[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\n"
	beginBackend = "[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n"
)

// beginBackends is an [lb] table with a VIP and backends.
func beginBackends(addrs ...string) string {
	text := "[lb]\nseed = \"x\"\nring_size = 251\n" + beginVIP
	for _, a := range addrs {
		text += strings.Replace(beginBackend, "10.0.0.11", a, 1)
	}
	return text
}

// TestBeginPutsBack has a stage fail when the rules and the VIPs of a file are in force already: rules, VIPs, rings, backends,
// next hops and the flows that the table has are as they were.
func TestBeginPutsBack(t *testing.T) {
	const anotherRing = "another ring"
	rule := func(name string) string {
		return fmt.Sprintf("[[filter.rule]]\nname = %q\naction = \"count\"\nexpression = \"tcp\"\n", name)
	}
	for what, then := range map[string]string{
		"another backend":  beginBackends("10.0.0.11", "10.0.0.13"),
		"all others":       beginBackends("10.0.0.13", "10.0.0.14"),
		"another VIP":      strings.Replace(beginBackends("10.0.0.11"), "192.0.2.1:80", "192.0.2.2:80", 1),
		"one backend more": beginBackends("10.0.0.11", "10.0.0.12", "10.0.0.13"),
		"none":             "[lb]\nseed = \"x\"\nring_size = 251\n",
		anotherRing:        strings.Replace(beginBackends("10.0.0.11", "10.0.0.14"), "251", "127", 1),
	} {
		t.Run(what, func(t *testing.T) {
			b := newBeginBed(t)
			b.must(b.attach(beginBackends("10.0.0.11", "10.0.0.12")+rule("old"), nil))
			defer func() {
				inst := b.open()
				defer inst.Close()
				if err := inst.DetachAll(); err != nil {
					t.Error(err)
				}
			}()
			went := make(map[int]string)
			to := make(map[string]bool)
			for client := range 40 {
				b.send(client)
				went[client] = b.send(client)
				to[went[client]] = true
			}
			if !reflect.DeepEqual(to, map[string]bool{"fwd lb-flow to 020000000011": true, "fwd lb-flow to 020000000012": true}) {
				t.Fatalf("flows went %v", to)
			}
			inst := b.open()
			before, was := b.picture(), b.state(inst)
			inst.Close()
			if !strings.Contains(before, "old") {
				t.Fatalf("no rule in\n%s", before)
			}

			err := b.attach(then+rule("new"), func(s lb.State) {
				// Rings of another size are in maps of their own, which go with the program.
				if what != anotherRing && !reflect.DeepEqual(s.VIPs, was.VIPs) {
					t.Errorf("the new program was left with\n%+v\nwas\n%+v", s.VIPs, was.VIPs)
				}
			})
			if !errors.Is(err, errBehind) {
				t.Fatalf("attached: %v", err)
			}
			if after := b.picture(); after != before {
				t.Errorf("it is\n%s\nwas\n%s", after, before)
			}
			for client, before := range went {
				if now := b.send(client); now != before {
					t.Errorf("client %d: %s, was %s", client, now, before)
				}
			}
			// Flows may have gone to a backend that was there for a moment: its number is of another life next time.
			inst = b.open()
			generations := b.state(inst).Generations
			inst.Close()
			if strings.Contains(then, "10.0.0.13") && generations[2] != 1 {
				t.Errorf("generations %v", generations)
			}
		})
	}
}
