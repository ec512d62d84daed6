// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"sync"

	"culvert/internal/api"
	"culvert/internal/host/pins"
	"culvert/internal/host/unixsock"
	"culvert/internal/httpserve"
)

// showGroup is the group whose members may see what a data plane does.
const showGroup = "culvert"

// serveShow answers programs on a socket that only shows, until ctx ends. It does not share the control socket: what other users
// do to it has no effect on 'culvert reload'. A process without it works, and the log says so.
func (p *process) serveShow(ctx context.Context) *sync.WaitGroup {
	var work sync.WaitGroup
	here, err := pins.Here()
	if err != nil {
		p.log.Warn("no socket shows this data plane to programs", "err", err)
		return &work
	}
	l, err := unixsock.Listen(socketPaths(here.Inode, p.up.name, showExtension), p.permitGroup)
	if err != nil {
		p.log.Warn("no socket shows this data plane to programs", "err", err)
		return &work
	}
	h := api.Handler(p.source())
	work.Go(func() {
		defer l.Remove()
		if err := httpserve.ServeFew(ctx, l, api.MostConnections, h, "what programs ask for"); err != nil {
			p.log.Error("no socket shows this data plane to programs any more", "err", err)
		}
	})
	return &work
}

// source is what programs are told about.
func (p *process) source() *api.Source {
	return &api.Source{
		Name: p.up.name, Metrics: p.metrics, LogError: p.log.Error, LogChange: p.logChange, LogCapture: p.logCapture, Changing: p.changes.RLocker(),
		Events: p.events,
	}
}

// permitGroup lets the group use a socket beside root. Without the group it is root's alone.
func (p *process) permitGroup(path string) error {
	err := giveGroup(path, showGroup)
	if err == nil {
		return os.Chmod(path, 0o660)
	}
	p.log.Info("only root may use the socket that shows this data plane to programs", "why", err)
	return os.Chmod(path, rootOnly)
}

// giveGroup gives a file to a group.
func giveGroup(path, name string) error {
	g, err := user.LookupGroup(name)
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s has the ID %q: %w", name, g.Gid, err)
	}
	if err := os.Chown(path, -1, id); err != nil {
		return fmt.Errorf("giving it to group %s: %w", name, err)
	}
	return nil
}
