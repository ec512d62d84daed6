// SPDX-License-Identifier: Apache-2.0

// Package node carries out a configuration file: it is where the stages meet.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/scion"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// Run attaches what the configuration at path asks for and keeps it in step with the system until
// ctx ends. The data plane stays.
func Run(ctx context.Context, path string) error {
	n, err := stages.Load(path)
	if err != nil {
		return err
	}
	return run(ctx, stage.File{Path: path, Node: n})
}

// RunSCION runs the border router of a reference router's TOML file as Run does, with the defaults but for what s says. For
// a data plane that runs already it is a file with nothing but [scion]: what another file has left goes, what was made by
// hand stays.
func RunSCION(ctx context.Context, s scion.Table) error {
	return run(ctx, stage.File{Path: s.Config, Node: &config.Node{
		Mode: config.ModeNative, Missing: config.MissingRefuse, Detached: config.DetachedStay,
		Tables: map[string]config.Table{scion.Stage{}.Name(): &s},
	}})
}

// LoadFilter compiles the [filter] table of the file at path, to try it.
func LoadFilter(path string) (*filterplane.Filter, *filterplane.TesterSets, error) {
	n, err := stages.Load(path)
	if err != nil {
		return nil, nil, err
	}
	f := stage.File{Path: path, Node: n}
	if stage.Table[*filterstage.Table](f, filterstage.Stage{}) == nil {
		return nil, nil, fmt.Errorf("%s has no [filter] table", path)
	}
	p, err := filterstage.Compile(f)
	if err != nil {
		return nil, nil, err
	}
	return p.Alone()
}

// has tells whether a file has the table of a stage.
func has(n *config.Node, s stage.Stage) bool { return n.Tables[s.Name()] != nil }

func run(ctx context.Context, f stage.File) error {
	n, log := f.Node, logger()
	if !has(n, scion.Stage{}) && n.Workers != nil {
		log.Warn("[workers] has no effect: only the SCION router's packets are spread, and there is no [scion]", "file", f.Path)
	}
	listener, err := listen(n)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u, err := bringUp(ctx, f, stage.Start{Process: true, Log: log, Out: io.Discard}, false)
	if err != nil {
		return err
	}
	defer u.close()
	defer cancel()
	if u.inst != nil && !has(n, scion.Stage{}) { // whose own log says so
		tellRuns(log, u.name, u.inst.Attached(), u.inst.Adopted())
	}
	return u.serve(ctx, listener, log)
}

// tellRuns says where a data plane is attached. Which interfaces are missing the follower says.
func tellRuns(log *slog.Logger, name string, on []string, adopted bool) {
	if len(on) == 0 {
		log.Warn("attached to nothing yet: none of the interfaces exists", "name", name, "adopted", adopted)
		return
	}
	log.Info("attached", "name", name, "interfaces", on, "adopted", adopted)
}

// listen takes the address of the node's metrics, nil for none. A SCION router has its own.
func listen(n *config.Node) (net.Listener, error) {
	if n.Metrics == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", n.Metrics)
	if err != nil {
		if by := server(n.Name); by != "" { // it has the address: the first thing to know
			return nil, fmt.Errorf("router %s is served by %s: stop that process first", n.Name, by)
		}
		return nil, fmt.Errorf("serving metrics on %s: %w", n.Metrics, err)
	}
	return listener, nil
}

// server says which process keeps the data plane of that name here, "" for none.
func server(name string) string {
	inst, err := datapath.OpenHere(name)
	if inst == nil || err != nil {
		return ""
	}
	defer inst.Close()
	switch pid := inst.ServerPID(); {
	case !inst.Served():
		return ""
	case pid != 0:
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

// Attach attaches what the configuration at path asks for to the interfaces, or to those of the file if there are none, finds
// the neighbors of all links and backends, and returns. There is no slow path, links count as up, and keys may come later. It
// writes to out what was attached and what was not found.
func Attach(ctx context.Context, path string, interfaces []string, out io.Writer) error {
	n, err := stages.Load(path)
	if err != nil {
		return err
	}
	var without []string
	if len(interfaces) > 0 {
		without = slices.DeleteFunc(slices.Clone(n.Interfaces), func(name string) bool { return slices.Contains(interfaces, name) })
		n.Interfaces = interfaces
	}
	n.Missing = config.MissingRefuse
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u, err := bringUp(ctx, stage.File{Path: path, Node: n}, stage.Start{Log: logger(), Out: out}, false)
	if err != nil {
		return err
	}
	defer u.close()
	if u.inst == nil {
		return fmt.Errorf("%s: all underlay addresses of router %s are on loopback, so there is no interface to attach to: use culvert run -c %[1]s", path, u.name)
	}
	tellAttached(u, out)
	if len(without) > 0 {
		fmt.Fprintf(out, "without %s: the file names it, this command does not\n", strings.Join(without, ", "))
	}
	return u.settle(ctx)
}

func tellAttached(u *up, out io.Writer) {
	what := u.name
	if has(u.file.Node, scion.Stage{}) {
		what = "router " + what
	}
	fmt.Fprintf(out, "%s attached to %s\n", what, strings.Join(u.inst.Attached(), ", "))
	for _, name := range u.inst.DetachedFrom() {
		fmt.Fprintf(out, "taken off %s, which was not named\n", name)
	}
}

// AttachTemporary is Attach for a measurement: the data plane is gone when the instance is closed, or with the
// process. A link whose neighbor does not answer is an error.
func AttachTemporary(ctx context.Context, path string, interfaces []string) (*datapath.Instance, error) {
	n, err := stages.Load(path)
	if err != nil {
		return nil, err
	}
	n.Interfaces, n.Missing = interfaces, config.MissingRefuse
	delete(n.Tables, filterstage.Stage{}.Name())
	u, err := bringUp(ctx, stage.File{Path: path, Node: n}, stage.Start{Log: logger(), Out: io.Discard}, true)
	if err != nil {
		return nil, err
	}
	inst := u.inst
	u.inst = nil // the caller's
	u.close()
	for _, p := range u.prepared {
		if m, ok := p.(interface{ Missing() error }); ok {
			err = errors.Join(err, m.Missing())
		}
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		inst.Close()
		return nil, err
	}
	return inst, nil
}
