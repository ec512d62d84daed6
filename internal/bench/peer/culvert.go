// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/scionproto/scion/private/topology"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// Culvert is culvert's own data plane, without a slow path.
type Culvert struct {
	// Traffic describes the packets that it forwards.
	Traffic SCIONTraffic
	// SkipMAC turns the verification of hop field MACs off.
	SkipMAC bool
	// General leaves out the straight way, so that the general code handles all packets.
	General bool
	// Workers are the CPUs that packets are spread over: by flow, or round-robin if RoundRobin is set.
	Workers    []int
	RoundRobin bool
	queue      int
	in         load.End
	inst       *datapath.Instance
	// prepared is set between Prepare and Release. Detach only pauses the data plane then, because loading it takes longer
	// than a round.
	prepared bool
}

// Prepare implements Preparer: it loads the data plane and pauses it.
func (d *Culvert) Prepare(_ context.Context, p Path) error {
	d.prepared = true
	if err := d.load(p); err != nil {
		return err
	}
	return d.inst.Pause()
}

// Release implements Preparer: it unloads the data plane.
func (d *Culvert) Release() error {
	d.prepared = false
	return d.Detach()
}

// Attach implements Device.
func (d *Culvert) Attach(_ context.Context, p Path) error {
	if d.prepared {
		return p.In.Netns.Do(d.inst.Resume)
	}
	return d.load(p)
}

// load loads, configures and attaches the data plane.
func (d *Culvert) load(p Path) error {
	router, err := benchRouter()
	if err != nil {
		return err
	}
	d.in = p.In
	part := scionplane.NewPart(d.config())
	part.SkipMAC = d.SkipMAC
	o := datapath.Options{
		Name:       scionRouterID,
		Interfaces: []string{p.In.Name, p.Out.Name},
		Parts:      []datapath.Part{part},
		Workers:    datapath.Workers{CPUs: d.Workers, Queue: d.queue},
		RoundRobin: d.RoundRobin,
		General:    d.General,
		Temporary:  true,
	}
	err = p.In.Netns.Do(func() error {
		d.inst, err = datapath.Attach(o)
		return err
	})
	if err != nil {
		return err
	}
	in := scionplane.NextHop{
		IfIndex: p.In.Index,
		SrcMAC:  [6]byte(p.In.MAC),
		DstMAC:  [6]byte(p.Source.MAC),
		MTU:     1500,
	}
	out := scionplane.NextHop{
		IfIndex: p.Out.Index,
		SrcMAC:  [6]byte(p.Out.MAC),
		DstMAC:  [6]byte(p.Sink.MAC),
		MTU:     1500,
	}
	plane := scionplane.Of(d.inst)
	return errors.Join(
		plane.AddKey(0, router.key),
		plane.SetLinkNextHop(1, in),
		plane.SetLinkNextHop(2, out),
		plane.SetLinkUp(1, true),
		plane.SetLinkUp(2, true),
	)
}

func (d *Culvert) config() scionplane.Config {
	typeIn, typeOut := d.Traffic.linkTypes()
	external := func(name string, id uint16, l scionLink) scionplane.Link {
		return scionplane.Link{
			Name:       name,
			Scope:      scionplane.ScopeExternal,
			IfID:       id,
			NeighborIA: uint64(l.ia),
			Local:      l.local,
			Remote:     l.remote,
		}
	}
	return scionplane.Config{
		LocalIA: uint64(scionIA),
		Links: []scionplane.Link{
			{Name: "internal", Local: scionInternal},
			external("1", 1, scionIn),
			external("2", 2, scionOut),
		},
		Interfaces: []scionplane.Interface{
			{ID: 1, Link: 1, Type: linkType(typeIn)},
			{ID: 2, Link: 2, Type: linkType(typeOut)},
		},
		PortStart: 31000,
		PortEnd:   32767,
	}
}

// linkType is the data plane's value of a link type.
func linkType(t topology.LinkType) scionplane.LinkType {
	switch t {
	case topology.Core:
		return scionplane.LinkCore
	case topology.Child:
		return scionplane.LinkChild
	default:
		panic(fmt.Sprintf("the bench has no links of type %s", t))
	}
}

// Frames implements Device.
func (d *Culvert) Frames(p Path, common [][]byte) ([][]byte, error) {
	router, err := benchRouter()
	if err != nil {
		return nil, err
	}
	return d.Traffic.frames(router, p, len(common))
}

// Losses counts all packets that were not forwarded, by reason: there is no slow path to pass them to.
func (d *Culvert) Losses() (map[string]uint64, error) { return CulvertLosses(d.inst, d.in, true) }

// CulvertLosses counts the packets that arrived at a device and that culvert dropped, by reason. If alone is set there is no
// slow path, and the packets that culvert passed are lost too.
func CulvertLosses(inst *datapath.Instance, in load.End, alone bool) (map[string]uint64, error) {
	ports, err := inst.Ports()
	if err != nil {
		return nil, err
	}
	lost := map[string]uint64{}
	for _, port := range ports {
		for _, r := range port.Reasons {
			if port.Interface == in.Name && (r.Verdict == string(datapath.VerdictDrop) || r.Limited ||
				alone && r.Verdict != string(datapath.VerdictFwd)) {
				lost["culvert_"+r.Verdict+"_"+r.Name] += r.Packets
			}
		}
		if port.Interface == in.Name {
			lost["culvert_"+stats.LossWorkerQueue] += port.Losses[stats.LossWorkerQueue]
		}
	}
	return lost, nil
}

// Program implements SingleProgram.
func (d *Culvert) Program() (*ebpf.Program, uint32) { return d.inst.Program(), load.XDPRedirect }

// Instance is the data plane, nil before Attach.
func (d *Culvert) Instance() *datapath.Instance { return d.inst }

// Spread has the data plane spread packets over workers, before Attach.
func (d *Culvert) Spread(cpus []int) { d.Workers = cpus }

// Detach implements Device.
func (d *Culvert) Detach() error {
	if d.inst == nil {
		return nil
	}
	if d.prepared {
		return d.inst.Pause()
	}
	defer d.inst.Close()
	return d.inst.DetachAll()
}
