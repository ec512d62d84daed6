// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/scionproto/scion/private/topology"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

// culvert is culvert's own data plane, without a slow path.
type culvert struct {
	traffic scionTraffic
	// skipMAC leaves the verification of hop fields out.
	skipMAC bool
	// workers are the CPUs that packets are spread over, by turns if turns is set.
	workers []int
	queue   int
	turns   bool
	in      End
	inst    *datapath.Instance
	// stays is set while the data plane is only paused between rounds: loading it takes longer than a round.
	stays bool
}

// Prepare loads the data plane.
func (d *culvert) Prepare(_ context.Context, p Path) error {
	d.stays = true
	if err := d.load(p); err != nil {
		return err
	}
	return d.inst.Pause()
}

// Release unloads it.
func (d *culvert) Release() error {
	d.stays = false
	return d.Detach()
}

func (d *culvert) Attach(_ context.Context, p Path) error {
	if d.stays {
		return p.In.Space.Do(d.inst.Resume)
	}
	return d.load(p)
}

// load loads, sets up and attaches the data plane.
func (d *culvert) load(p Path) error {
	router, err := benchRouter()
	if err != nil {
		return err
	}
	d.in = p.In
	o := datapath.Options{
		Name:       scionRouterID,
		Interfaces: []string{p.In.Name, p.Out.Name},
		SkipMAC:    d.skipMAC,
		Workers:    datapath.Workers{CPUs: d.workers, Queue: d.queue},
		Turns:      d.turns,
		Temporary:  true,
	}
	err = p.In.Space.Do(func() error {
		d.inst, err = datapath.Attach(o, d.config())
		return err
	})
	if err != nil {
		return err
	}
	in := datapath.NextHop{
		IfIndex: p.In.Index,
		SrcMAC:  [6]byte(p.In.MAC),
		DstMAC:  [6]byte(p.Source.MAC),
		MTU:     1500,
	}
	out := datapath.NextHop{
		IfIndex: p.Out.Index,
		SrcMAC:  [6]byte(p.Out.MAC),
		DstMAC:  [6]byte(p.Sink.MAC),
		MTU:     1500,
	}
	return errors.Join(
		d.inst.AddKey(0, router.key),
		d.inst.SetLinkNextHop(1, in),
		d.inst.SetLinkNextHop(2, out),
		d.inst.SetLinkUp(1, true),
		d.inst.SetLinkUp(2, true),
	)
}

func (d *culvert) config() datapath.Config {
	typeIn, typeOut := d.traffic.linkTypes()
	external := func(name string, id uint16, l scionLink) datapath.Link {
		return datapath.Link{
			Name:       name,
			Scope:      datapath.ScopeExternal,
			IfID:       id,
			NeighborIA: uint64(l.ia),
			Local:      l.local,
			Remote:     l.remote,
		}
	}
	return datapath.Config{
		LocalIA: uint64(scionIA),
		Links: []datapath.Link{
			{Name: "internal", Local: scionInternal},
			external("1", 1, scionIn),
			external("2", 2, scionOut),
		},
		Interfaces: []datapath.Interface{
			{ID: 1, Link: 1, Type: linkType(typeIn)},
			{ID: 2, Link: 2, Type: linkType(typeOut)},
		},
		PortStart: 31000,
		PortEnd:   32767,
	}
}

// linkType is the data plane's number of a link type.
func linkType(t topology.LinkType) datapath.LinkType {
	switch t {
	case topology.Core:
		return datapath.LinkCore
	case topology.Child:
		return datapath.LinkChild
	default:
		panic(fmt.Sprintf("the bench has no links of type %s", t))
	}
}

func (d *culvert) Frames(p Path, common [][]byte) ([][]byte, error) {
	router, err := benchRouter()
	if err != nil {
		return nil, err
	}
	return d.traffic.frames(router, p, len(common))
}

// Losses are all packets that were not forwarded, by reason: there is nobody to pass them to.
func (d *culvert) Losses() (map[string]uint64, error) { return culvertLosses(d.inst, d.in, true) }

// culvertLosses counts the packets that arrived at a device and that culvert did not forward, by reason. Alone it has
// lost those too that it left to others.
func culvertLosses(inst *datapath.Instance, in End, alone bool) (map[string]uint64, error) {
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

func (d *culvert) Program() (*ebpf.Program, uint32) { return d.inst.Program(), xdpRedirect }

func (d *culvert) Detach() error {
	if d.inst == nil {
		return nil
	}
	if d.stays {
		return d.inst.Pause()
	}
	defer d.inst.Close()
	return d.inst.DetachAll()
}
