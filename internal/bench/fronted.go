// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/netdev"
	"culvert/internal/node"
)

// fronted is the reference router with culvert's data plane in front of it, as 'culvert attach' puts it there: what
// culvert does not forward itself goes on to the router's sockets.
type fronted struct {
	reference
	inst *datapath.Instance
}

// Prepare starts the router, which stays. Its neighbours' devices are made to take redirected frames, as those of a
// network have to be before culvert sends there.
func (d *fronted) Prepare(ctx context.Context, p Path) error {
	for _, far := range []End{p.Source, p.Sink} {
		err := far.Space.Do(func() error {
			_, err := netdev.Ethtool(far.Name, unix.ETHTOOL_SGRO, 1)
			return err
		})
		if err != nil {
			return fmt.Errorf("turn GRO on for %s: %w", far.Name, err)
		}
	}
	return d.startIn(ctx, p)
}

func (d *fronted) Attach(ctx context.Context, p Path) error {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the router's files: %w", err)
	}
	if err = d.configure(dir); err == nil {
		d.inst, err = attachInFront(ctx, filepath.Join(dir, "br.toml"), p.In, p.Out)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// attachInFront does what 'culvert attach' does, in front of the reference router with that configuration file. The
// data plane is gone when the instance is closed, or with this process.
func attachInFront(ctx context.Context, routerConfig string, interfaces ...End) (*datapath.Instance, error) {
	dir, err := os.MkdirTemp("", "culvert-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for culvert's configuration: %w", err)
	}
	config := filepath.Join(dir, "culvert.toml")
	err = os.WriteFile(config, fmt.Appendf(nil, "[scion]\nconfig = %q\n", routerConfig), 0o600)
	var inst *datapath.Instance
	if err == nil {
		var names []string
		for _, e := range interfaces {
			names = append(names, e.Name)
		}
		err = interfaces[0].Space.Do(func() error {
			inst, err = node.AttachTemporary(ctx, config, names)
			return err
		})
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil && inst != nil {
		inst.Close()
		inst = nil
	}
	return inst, err
}

// Losses are those of the router, and what culvert itself drops.
func (d *fronted) Losses() (map[string]uint64, error) {
	lost, err := d.reference.Losses()
	if err != nil {
		return nil, err
	}
	own, err := culvertLosses(d.inst, d.in, false)
	maps.Copy(lost, own)
	return lost, err
}

// Detach takes culvert off.
func (d *fronted) Detach() error {
	if d.inst != nil {
		d.inst.Close()
		d.inst = nil
	}
	return nil
}

// Release ends the router.
func (d *fronted) Release() error { return d.reference.Detach() }
