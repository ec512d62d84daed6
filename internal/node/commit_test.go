// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
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
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
	"culvert/internal/stage"
	"culvert/internal/stages"
	"culvert/internal/testbed"
)

const commitName = "node-commit-test"

// commitBed is a namespace with interface nb0, by which clients' packets come in, and nb2, behind which the backends are.
type commitBed struct {
	t  *testing.T
	in *net.Interface
}

func newCommitBed(t *testing.T) *commitBed {
	t.Helper()
	testbed.InNamespace(t)
	b := &commitBed{t, testbed.AddVeth(t, "nb0", "nb1")}
	testbed.AddVeth(t, "nb2", "nb3")
	testbed.IP(t, "addr add 10.0.0.1/24 dev nb2")
	testbed.IP(t, "neigh replace 10.0.0.11 lladdr 02:00:00:00:00:11 dev nb2 nud permanent")
	testbed.IP(t, "neigh replace 10.0.0.12 lladdr 02:00:00:00:00:12 dev nb2 nud permanent")
	// A veth without GRO or an XDP program drops frames that XDP redirects to its peer.
	if out, err := exec.Command("ethtool", "-K", "nb3", "gro", "on").CombinedOutput(); err != nil {
		t.Fatalf("ethtool: %v: %s", err, out)
	}
	return b
}

// attach attaches the data plane that a file describes, with stage first in front of the filter and the load balancer and stage
// last behind them. Either may be nil.
func (b *commitBed) attach(text string, first, last stage.Prepared) error {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "c.toml")
	b.must(os.WriteFile(path, []byte("interfaces = [\"nb0\"]\n"+text), 0o600))
	n, err := stages.Load(path)
	b.must(err)
	// Without interfaces in the file, nothing is refused for them before Commit.
	on := n.Interfaces
	n.Interfaces = nil
	u := &up{file: stage.File{Path: path, Node: n}, name: commitName, on: on}
	defer u.close()
	rules, err := filterstage.Compile(u.file)
	b.must(err)
	balancer, err := lbstage.Compile(u.file)
	b.must(err)
	running, err := datapath.OpenHere(commitName)
	b.must(err)
	b.must(balancer.Check(stage.Situation{Interfaces: on, Running: running}))
	if running != nil {
		running.Close()
	}
	start := stage.Start{Log: slog.New(slog.DiscardHandler), Out: io.Discard}
	if first != nil {
		u.prepared = append(u.prepared, first)
	}
	for _, p := range []stage.Plan{rules, balancer} {
		prepared, err := p.Prepare(b.t.Context(), start)
		b.must(err)
		u.prepared = append(u.prepared, prepared)
	}
	if last != nil {
		u.prepared = append(u.prepared, last)
	}
	if err := u.attach(b.t.Context(), u.options(start.Process)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if missing, err := lb.Resolve(ctx, u.inst); err != nil || len(missing) > 0 {
		b.t.Fatalf("no next hop to %v: %v", missing, err)
	}
	return nil
}

// commitFunc is a stage that has nothing but its Commit.
type commitFunc func(inst *datapath.Instance, rest func() error) error

func (commitFunc) Name() string                        { return "test" }
func (commitFunc) Part() datapath.Part                 { return nil }
func (commitFunc) Serve(context.Context, func()) error { return nil }
func (commitFunc) Settle(context.Context) error        { return nil }
func (commitFunc) Close() error                        { return nil }

func (f commitFunc) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	return f(inst, rest)
}

func (b *commitBed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *commitBed) open() *datapath.Instance {
	b.t.Helper()
	inst, err := datapath.OpenHere(commitName)
	b.must(err)
	return inst
}

func (b *commitBed) state(inst *datapath.Instance) lb.State {
	b.t.Helper()
	plane, err := lbplane.View(inst)
	b.must(err)
	s, err := lb.Load(plane)
	b.must(err)
	return s
}

// tables prints what the programs know of VIPs, rings, backends and rules.
func (b *commitBed) tables() string {
	b.t.Helper()
	inst := b.open()
	defer inst.Close()
	plane, err := lbplane.View(inst)
	b.must(err)
	vips, err := plane.VIPs()
	b.must(err)
	text := fmt.Sprintf("%+v\n", vips)
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
	f, err := filterplane.Read(inst)
	b.must(err)
	text += fmt.Sprintf("%+v\n", f.Rules)
	return text
}

// send runs the program on a segment of a client. It returns what the segment was counted as and the MAC address it was sent to.
func (b *commitBed) send(client int) string {
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

// lbTable is an [lb] table with VIP 192.0.2.1:80, if it has backends.
func lbTable(ringSize int, backends ...string) string {
	text := fmt.Sprintf("[lb]\nseed = \"x\"\nring_size = %d\n", ringSize)
	if len(backends) > 0 {
		text += "[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\n"
	}
	for _, a := range backends {
		text += "[[lb.vip.backend]]\naddress = \"" + a + "\"\n"
	}
	return text
}

// countRule is a rule that counts TCP packets that come in by an interface.
func countRule(name, iface string) string {
	return fmt.Sprintf("[[filter.rule]]\nname = %q\naction = \"count\"\ninterfaces = [%q]\nexpression = \"tcp\"\n", name, iface)
}

// TestCommitFails attaches with a second file and has a stage fail when the file's VIPs are in force. VIPs, rings, backends, next
// hops, flows and the filter's rules are as they were.
func TestCommitFails(t *testing.T) {
	const size = 251
	refused := errors.New("refused by the last stage")
	for _, tt := range []struct {
		name, file string
		// newRings is set for rings of another size. They are in maps of their own, which go with the new program.
		newRings bool
		// generation is wanted of slot 2. It has grown if a backend was there for a moment, since flows may have gone to it.
		generation uint32
		// iface is the interface of the file's rule, nb0 by default. Only nb0 is there.
		iface string
		want  string
	}{
		{name: "another backend", file: lbTable(size, "10.0.0.11", "10.0.0.13"), generation: 1, want: refused.Error()},
		{name: "all others", file: lbTable(size, "10.0.0.13", "10.0.0.14"), generation: 1, want: refused.Error()},
		{name: "another VIP", file: strings.Replace(lbTable(size, "10.0.0.11"), "192.0.2.1:80", "192.0.2.2:80", 1), generation: 1, want: refused.Error()},
		{name: "one backend more", file: lbTable(size, "10.0.0.11", "10.0.0.12", "10.0.0.13"), generation: 1, want: refused.Error()},
		{name: "none", file: lbTable(size), want: refused.Error()},
		{name: "another ring", file: lbTable(127, "10.0.0.11", "10.0.0.14"), newRings: true, want: refused.Error()},
		{name: "the filter refuses", file: lbTable(size, "10.0.0.11", "10.0.0.13"), iface: "nb9", want: "not on nb9"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newCommitBed(t)
			b.must(b.attach(lbTable(size, "10.0.0.11", "10.0.0.12")+countRule("old", "nb0"), nil, nil))
			defer func() {
				inst := b.open()
				defer inst.Close()
				if err := inst.DetachAll(); err != nil {
					t.Error(err)
				}
			}()
			const clients = 40
			flows := make(map[int]string)
			seen := make(map[string]bool)
			for client := range clients {
				b.send(client)
				flows[client] = b.send(client)
				seen[flows[client]] = true
			}
			if !reflect.DeepEqual(seen, map[string]bool{"fwd lb-flow to 020000000011": true, "fwd lb-flow to 020000000012": true}) {
				t.Fatalf("flows went %v", seen)
			}
			inst := b.open()
			before, stateBefore := b.tables(), b.state(inst)
			inst.Close()
			if !strings.Contains(before, "old") {
				t.Fatalf("no rule in\n%s", before)
			}

			// The first stage looks after the others have restored what they changed.
			first := commitFunc(func(inst *datapath.Instance, rest func() error) error {
				err := rest()
				if now := b.state(inst); err != nil && !tt.newRings && !reflect.DeepEqual(now.VIPs, stateBefore.VIPs) {
					t.Errorf("the new program was left with\n%+v\nwant\n%+v", now.VIPs, stateBefore.VIPs)
				}
				return err
			})
			last := commitFunc(func(inst *datapath.Instance, _ func() error) error {
				if now := b.state(inst); !tt.newRings && reflect.DeepEqual(now.VIPs, stateBefore.VIPs) {
					t.Error("the file's VIPs are not in force yet")
				}
				return refused
			})
			if err := b.attach(tt.file+countRule("new", cmp.Or(tt.iface, "nb0")), first, last); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("attach: error %v, want %q", err, tt.want)
			}
			if after := b.tables(); after != before {
				t.Errorf("after the failure\n%s\nwant\n%s", after, before)
			}
			for client, want := range flows {
				if got := b.send(client); got != want {
					t.Errorf("client %d: %s, want %s", client, got, want)
				}
			}
			inst = b.open()
			generations := b.state(inst).Generations
			inst.Close()
			if got := generations[2]; got != tt.generation {
				t.Errorf("slot 2 has generation %d, want %d", got, tt.generation)
			}
		})
	}
}
