// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/datapath"
	"culvert/internal/decap/decapplane"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/maglev"
)

// culvert is culvert's load balancer, with the same service and backends as all balancers.
type culvert struct {
	encap lbplane.Encap
	// v6 selects IPv6 for service, clients and backends.
	v6 bool
	// flows is the size of the flow table, insertRate the number of flows that enter it in a second. 0 stands for the defaults.
	flows, insertRate int
	// host is the Ethernet address of all backends. If it is nil each has its own.
	host net.HardwareAddr
	in   load.End
	inst *datapath.Instance
}

// unlimited is an insert rate that packets never reach.
const unlimited = 1_000_000_000

// Sources of encapsulated packets.
var (
	sources = netip.MustParsePrefix("10.200.0.0/16")
	source6 = netip.MustParsePrefix("fd00:200::/64")
)

// load attaches the data plane to In and Out. fill adds its services.
func (d *culvert) load(p peer.Path, fill func(*lbplane.Plane) error) error {
	d.in = p.In
	return p.In.Netns.Do(func() (err error) {
		d.inst, err = datapath.Attach(datapath.Options{
			Name: "bench", Interfaces: []string{p.In.Name, p.Out.Name}, Temporary: true,
			Parts: []datapath.Part{lbplane.NewPart(lbplane.Options{Flows: d.flows, InsertRate: d.insertRate, Fill: fill})},
		})
		return err
	})
}

// attach attaches the data plane with the service and its backends, which are behind Out.
func (d *culvert) attach(p peer.Path) error {
	return d.load(p, func(plane *lbplane.Plane) error { return d.fill(plane, p) })
}

func (d *culvert) fill(plane *lbplane.Plane, p peer.Path) error {
	vip, backend, source := vip4, backendAddr, sources
	if d.v6 {
		vip, backend, source = vip6, backendAddr6, source6
	}
	backends := make([]maglev.Backend, backendCount)
	all := make([]lbplane.Backend, backendCount)
	for n := range all {
		m := lbplane.Backend{
			ID: lbplane.NewBackendID(uint32(n), 1), Addr: backend(n), Encap: d.encap, GUEPort: decapplane.DefaultGUEPort, Source: source,
			Used: true, Hop: lbplane.Hop{Port: p.Out.Index, SrcMAC: [6]byte(p.Out.MAC), DstMAC: [6]byte(backendMAC(n)), MTU: 1500},
		}
		if d.host != nil {
			m.Hop.DstMAC = [6]byte(d.host)
		}
		if err := plane.SetBackend(m); err != nil {
			return err
		}
		all[n], backends[n] = m, maglev.Backend{Key: m.Addr.AsSlice(), Weight: 1}
	}
	table, err := maglev.Table(plane.Options().RingSize, backends)
	if err != nil {
		return err
	}
	ring := make([]lbplane.BackendID, len(table))
	for i, n := range table {
		ring[i] = all[n].ID
	}
	if err := plane.SetRing(0, ring); err != nil {
		return err
	}
	return plane.SetVIP(lbplane.VIPKey{Addr: vip.Addr(), Proto: load.ProtoTCP, Port: vip.Port()}, lbplane.VIP{})
}

// reasons counts the packets that arrived and were forwarded, by reason.
func (d *culvert) reasons() (map[string]uint64, error) {
	ports, err := d.inst.Ports()
	if err != nil {
		return nil, err
	}
	count := map[string]uint64{}
	for _, port := range ports {
		for _, r := range port.Reasons {
			if port.Interface == d.in.Name && r.Verdict == string(datapath.VerdictFwd) {
				count[r.Name] += r.Packets
			}
		}
	}
	return count, nil
}

// Reasons of packets that were forwarded: their flow was in the flow table, entered it, or was not taken in.
const (
	reasonKnown     = "lb-flow"
	reasonNew       = "lb-new"
	reasonUntracked = "lb-untracked"
)

func (d *culvert) Detach() error {
	if d.inst == nil {
		return nil
	}
	defer d.inst.Close()
	if err := d.inst.DetachAll(); err != nil {
		return fmt.Errorf("detach culvert: %w", err)
	}
	return nil
}

// balancer is culvert's load balancer as a device between clients and backends.
type balancer struct{ culvert }

// Prepare loads the data plane, verifies that it balances, and pauses it.
func (d *balancer) Prepare(ctx context.Context, p peer.Path) error {
	if err := d.attach(p); err != nil {
		return err
	}
	if err := verify(ctx, p, arrivals[d.encap], false); err != nil {
		return err
	}
	return d.inst.Pause()
}

// arrivals has the form in which packets arrive at backends, by encapsulation.
var arrivals = map[lbplane.Encap]arrivalForm{
	lbplane.IPIP: arrivesTunnelled, lbplane.GUE: arrivesInUDP, lbplane.L2: arrivesSent,
}

func (d *balancer) Attach(_ context.Context, p peer.Path) error { return p.In.Netns.Do(d.inst.Resume) }

// Detach pauses the data plane, which keeps its flows.
func (d *balancer) Detach() error { return d.inst.Pause() }

// Release unloads the data plane.
func (d *balancer) Release() error { return d.culvert.Detach() }

// Frames returns the common frames, addressed to the balancer's Ethernet address.
func (*balancer) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.In.MAC, p.Source.MAC), nil
}

// Losses counts all packets that were not forwarded, by reason: there is no slow path to pass them to.
func (d *balancer) Losses() (map[string]uint64, error) { return peer.CulvertLosses(d.inst, d.in, true) }

// Diverted counts the packets of flows that were not in the flow table.
func (d *balancer) Diverted() (map[string]uint64, error) {
	count, err := d.reasons()
	return map[string]uint64{
		"the first of their flow":                    count[reasonNew],
		"by the ring, not taken into the flow table": count[reasonUntracked],
	}, err
}

// makeRoom makes the flow table large enough for a number of flows that begin at the same time.
func (d *balancer) makeRoom(flows uint32) { d.flows, d.insertRate = 2*int(flows), unlimited }

// dsr is culvert between clients and a host with all backends. The host decapsulates packets with 'culvert lb decap' and answers
// directly.
type dsr struct {
	culvert
	bed   *tcpBed
	decap bool
}

func (*dsr) available() error { return nil }

func (*dsr) spreads() bool { return false }

// place implements connector. It also turns checksum offload of the client off, because checksums that are left to a veth are
// never computed behind XDP.
func (d *dsr) place(_ context.Context, b *tcpBed) error {
	d.bed, d.host = b, b.path.Sink.MAC
	steps := []func() error{
		func() error { return makeHost(b.path, nil, false) },
		func() error { return b.routes(throughBalancer, directly) },
		func() error { return b.client.Do(func() error { return load.ChecksumOffloadOff(b.path.Source.Name) }) },
		func() error {
			d.decap = true
			return b.backends.Do(func() error {
				return decapplane.Attach([]string{b.path.Sink.Name}, decapplane.Options{GUEPort: decapplane.DefaultGUEPort})
			})
		},
		func() error { return d.attach(b.path) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// reached is the number of backends that have got packets.
func (d *dsr) reached() (backends int, err error) {
	plane, err := lbplane.View(d.inst)
	if err != nil {
		return 0, err
	}
	for n := range uint32(backendCount) {
		t, err := plane.Traffic(n)
		if err != nil {
			return 0, err
		}
		if t.Packets > 0 {
			backends++
		}
	}
	return backends, nil
}

func (d *dsr) remove() error {
	err := d.Detach()
	if d.decap {
		err = errors.Join(err, d.bed.backends.Do(func() error {
			_, err := decapplane.Detach(d.bed.path.Sink.Name)
			return err
		}))
	}
	return err
}
