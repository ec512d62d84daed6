// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"maps"

	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/show/planes"
)

// labRouter is the middle router of a lab: culvert, the reference router, or the latter with culvert in front of it.
type labRouter struct {
	at   *LabPath
	kind lab.Router
	// inFront puts culvert's data plane in front of the reference router.
	inFront bool
	// inst is culvert's data plane.
	inst *datapath.Instance
}

func (d *labRouter) Attach(ctx context.Context, p Path) error {
	if err := d.at.use(ctx, d.kind); err != nil || d.kind != lab.Culvert && !d.inFront {
		return err
	}
	if d.inFront {
		var err error
		d.inst, err = attachInFront(ctx, d.at.as.RouterConfig, p.In, p.Out)
		return err
	}
	return p.In.Netns.Do(func() (err error) {
		d.inst, err = planes.Open(d.at.as.RouterID, planes.Kind{Name: "data plane", None: "see 'culvert status'"})
		return err
	})
}

func (d *labRouter) Frames(p Path, common [][]byte) ([][]byte, error) {
	t := SCIONTraffic{Cold: true, Crossing: d.at.crossing, Size: FrameSize}
	return t.frames(d.at.router, p, len(common))
}

func (d *labRouter) Losses() (map[string]uint64, error) {
	lost := map[string]uint64{}
	if d.inst != nil {
		var err error
		if lost, err = CulvertLosses(d.inst, d.at.In, !d.inFront); err != nil {
			return nil, err
		}
		// These are the lab's own packets: packets that are not SCION, BFD, beacons, and messages to the control service on
		// the same host.
		for _, reason := range []string{"pass_other", "punt_scion-bfd", "punt_scion-onehop", "punt_scion-next-hop",
			"punt_scion-host-unknown", "punt_scion-host-kernel"} {
			delete(lost, "culvert_"+reason)
		}
	}
	if d.kind == lab.Culvert {
		return lost, nil
	}
	own, err := referenceLosses(d.at.In.Netns, d.at.as.RouterAPI.String())
	maps.Copy(lost, own)
	return lost, err
}

// Detach removes culvert's data plane from in front of the router. The router remains until the next row starts its own.
func (d *labRouter) Detach() error {
	if d.inst == nil {
		return nil
	}
	// The data plane of a culvert that runs as the router itself goes on.
	d.inst.Close()
	d.inst = nil
	return nil
}
