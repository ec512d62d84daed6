// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/node"
)

// culvertReference is the reference router with culvert's data plane in front of it, as 'culvert attach' sets it up. Packets
// that culvert does not forward go on to the router's sockets.
type culvertReference struct {
	Reference
	inst *datapath.Instance
}

// Prepare implements Preparer: it starts the router, and loads and pauses culvert. It turns GRO on at the far ends first,
// because culvert redirects only to devices whose peers accept redirected frames.
func (d *culvertReference) Prepare(ctx context.Context, p Path) error {
	for _, far := range []load.End{p.Source, p.Sink} {
		err := far.Netns.Do(func() error {
			_, err := netdev.Ethtool(far.Name, unix.ETHTOOL_SGRO, 1)
			return err
		})
		if err != nil {
			return fmt.Errorf("turn GRO on for %s: %w", far.Name, err)
		}
	}
	if err := d.startIn(ctx, p); err != nil {
		return err
	}
	var err error
	if d.inst, err = attachInFront(ctx, filepath.Join(d.files.Path(), "br.toml"), p.In, p.Out); err != nil {
		return err
	}
	return d.inst.Pause()
}

func (d *culvertReference) Attach(_ context.Context, p Path) error {
	return p.In.Netns.Do(d.inst.Resume)
}

// attachInFront does what 'culvert attach' does, in front of the reference router with the given configuration file. The
// data plane ends when the instance is closed or the process ends.
func attachInFront(ctx context.Context, routerConfig string, interfaces ...load.End) (inst *datapath.Instance, err error) {
	files, err := NewScratch()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	config := filepath.Join(files.Path(), "culvert.toml")
	text := fmt.Appendf(nil, "[scion]\nconfig = %q\n", routerConfig)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		return nil, fmt.Errorf("write culvert's configuration: %w", err)
	}
	var names []string
	for _, e := range interfaces {
		names = append(names, e.Name)
	}
	err = interfaces[0].Netns.Do(func() (err error) {
		inst, err = node.AttachTemporary(ctx, config, names)
		return err
	})
	return inst, err
}

// Losses counts the losses of the router, and the packets that culvert drops.
func (d *culvertReference) Losses() (map[string]uint64, error) {
	lost, err := d.Reference.Losses()
	if err != nil {
		return nil, err
	}
	own, err := CulvertLosses(d.inst, d.in, false)
	maps.Copy(lost, own)
	return lost, err
}

// Detach pauses culvert.
func (d *culvertReference) Detach() error {
	if d.inst == nil {
		return nil
	}
	return d.inst.Pause()
}

// Release unloads culvert and ends the router.
func (d *culvertReference) Release() error {
	if d.inst != nil {
		d.inst.Close()
	}
	return d.Reference.Detach()
}
