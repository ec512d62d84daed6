// SPDX-License-Identifier: Apache-2.0

// Package node brings a configuration file into force: it starts all stages, keeps the data plane on its interfaces, and
// carries out changes by hand.
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

	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/events"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/httpserve"
	"culvert/internal/lb/lbstage"
	"culvert/internal/scion"
	"culvert/internal/scion/logtee"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

func logger() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// Run attaches the data plane that the configuration at path describes and keeps it in step with the host until ctx ends. The
// data plane stays attached.
func Run(ctx context.Context, path string) error {
	m, err := joinCluster(path, logger())
	if err != nil {
		return err
	}
	defer m.close()
	if err := m.await(ctx, path, logger()); err != nil || ctx.Err() != nil {
		return err
	}
	return run(ctx, m, func(set *lastgood.Set) (stage.File, error) { return m.read(path, set) })
}

// RunSCION is Run for a SCION router without a file of culvert's own, with the settings of s. A data plane of the same name
// that runs already loses what came from its file, and keeps what was made by hand.
func RunSCION(ctx context.Context, s scion.Table) error {
	return run(ctx, nil, func(*lastgood.Set) (stage.File, error) {
		table := s
		return stage.File{Path: s.Config, Node: &config.Node{
			Mode: config.ModeNative, Missing: config.MissingRefuse, Detached: config.DetachedStay,
			Tables: map[string]config.Table{scion.Stage{}.Name(): &table},
		}}, nil
	})
}

// LoadFilter compiles the [filter] table of the file at path, for a trial without a data plane.
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

// run is Run for a file that read returns with documents of a cluster, now and when it is to be read again. m is nil without a cluster.
func run(ctx context.Context, m *member, read func(*lastgood.Set) (stage.File, error)) error {
	var set *lastgood.Set
	if m != nil {
		set = m.start
	}
	f, err := read(set)
	if err != nil {
		return err
	}
	n, level := f.Node, new(slog.LevelVar)
	level.Set(n.Level())
	hub := events.NewHub()
	log := slog.New(events.Handler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}), hub))
	logtee.Logged = hub.Message
	if err := idleWorkers(n); err != nil {
		log.Warn(err.Error())
	}
	opened, err := listen(n)
	if err != nil {
		return err
	}
	defer opened.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	exported := newExported()
	start := stage.Start{Process: true, Log: log, Out: io.Discard, Metrics: exported, Withheld: m.withheld}
	u, err := bringUp(ctx, f, start, &up{cluster: m, set: set})
	if err != nil {
		return err
	}
	m.again(ctx, u, log)
	m.started(log)
	if u.inst != nil && !has(n, scion.Stage{}) { // the SCION router logs this itself
		logAttached(log, u.name, u.inst.Attached(), u.inst.Adopted())
	}
	p := newProcess(u, read, exported, log, level)
	p.events = hub
	p.move(n, opened)
	defer func() { p.up.close() }()
	defer cancel()
	return p.run(ctx)
}

// logAttached logs which interfaces the data plane is attached to. followPorts logs which ones are missing.
func logAttached(log *slog.Logger, name string, on []string, adopted bool) {
	if len(on) == 0 {
		log.Warn("attached to nothing yet: none of the interfaces exists: see 'ip link'", "name", name, "adopted", adopted)
		return
	}
	log.Info("attached", "name", name, "interfaces", on, "adopted", adopted)
}

// listen opens the listeners of the node's metrics and of its page, nil for what the file does not ask for. A SCION router serves its
// own metrics.
func listen(n *config.Node) (l listeners, err error) {
	open := func(address string) (net.Listener, error) {
		if address == "" {
			return nil, nil
		}
		return httpserve.Listen(address)
	}
	l.metrics, err = open(n.Metrics)
	if err != nil {
		err = metricsError(n.Metrics, err)
	} else if l.web, err = open(n.WebAddress()); err != nil {
		err = webError(n.WebAddress(), err)
	}
	if err == nil {
		return l, nil
	}
	l.close()
	if by := servedBy(n.Name); by != "" { // its process has the address
		return listeners{}, fmt.Errorf("data plane %s is served by %s: stop that process first", n.Name, by)
	}
	if why := checkListeners(n, 0); why != nil {
		return listeners{}, why
	}
	return listeners{}, err
}

// servedBy names the process that serves the data plane name of this network namespace, "" if there is none.
func servedBy(name string) string {
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

// Attach attaches the data plane that the configuration at path describes, resolves the next hops of all links and backends,
// and returns. interfaces replace those of the file unless empty. There is no slow path, links count as up, and keys may be
// added later. Attach writes to out what it has attached and what it could not find. It returns an error if there is no
// interface to attach to.
func Attach(ctx context.Context, path string, interfaces []string, out io.Writer) error {
	n, err := loadKnown(path)
	if err != nil {
		return err
	}
	if err := checkLost(path, n); err != nil {
		return err
	}
	// Urgent changes that a process has carried out on the data plane stay. If a process has the state directory, attaching says that it serves.
	m, err := joinCluster(path, logger())
	if held := new(heldError); err != nil && !errors.As(err, &held) {
		return err
	}
	defer m.close()
	var unattached []string
	if len(interfaces) > 0 {
		unattached = slices.DeleteFunc(slices.Clone(n.Interfaces), func(name string) bool { return slices.Contains(interfaces, name) })
		n.Interfaces = interfaces
	}
	n.Missing = config.MissingRefuse
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u, err := bringUp(ctx, stage.File{Path: path, Node: n}, stage.Start{Log: logger(), Out: out}, &up{cluster: m})
	if err != nil {
		return err
	}
	defer u.close()
	if u.inst == nil {
		return fmt.Errorf("%s: all underlay addresses of router %s are on loopback, so there is no interface to attach to: use culvert run -c %[1]s", path, u.name)
	}
	m.once(ctx, u, logger())
	reportAttached(u, out)
	if len(unattached) > 0 {
		fmt.Fprintf(out, "without %s: the file names it, this command does not\n", strings.Join(unattached, ", "))
	}
	return u.settle(ctx)
}

func reportAttached(u *up, out io.Writer) {
	what := u.name
	if has(u.file.Node, scion.Stage{}) {
		what = "router " + what
	}
	fmt.Fprintf(out, "%s attached to %s\n", what, strings.Join(u.inst.Attached(), ", "))
	for _, name := range u.inst.DetachedFrom() {
		fmt.Fprintf(out, "taken off %s, which was not named\n", name)
	}
}

// AttachTemporary is Attach for a measurement: the data plane ends when the instance is closed or the process ends. Link
// neighbors that do not answer are an error.
func AttachTemporary(ctx context.Context, path string, interfaces []string) (*datapath.Instance, error) {
	n, err := stages.Load(path)
	if err != nil {
		return nil, err
	}
	if has(n, lbstage.Stage{}) { // it would wait for the lock that its own edit holds
		return nil, fmt.Errorf("%s: [lb] needs a data plane that is not temporary: take it out", path)
	}
	n.Interfaces, n.Missing = interfaces, config.MissingRefuse
	delete(n.Tables, filterstage.Stage{}.Name())
	u, err := bringUp(ctx, stage.File{Path: path, Node: n}, stage.Start{Log: logger(), Out: io.Discard}, &up{temporary: true})
	if err != nil {
		return nil, err
	}
	inst := u.inst
	u.inst = nil // the caller closes it
	u.close()
	if inst == nil {
		return nil, fmt.Errorf("%s: no stage has an interface to attach to: name interfaces", path)
	}
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
