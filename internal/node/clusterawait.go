// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
	"culvert/internal/host/systemd"
	"culvert/internal/stage"
)

// await waits until the cluster has documents with which the file at path is whole, if it is not and there are no last good ones. Such
// a file may have the table [cluster] and the interfaces alone. It also waits if the last good ones are lost and a data plane of this node
// goes on: that may run documents, which the file alone would take out.
func (m *member) await(ctx context.Context, path string, log *slog.Logger) error {
	if m == nil || m.start != nil {
		return nil
	}
	f, err := m.read(path, nil)
	w := &waiting{read: func(set *lastgood.Set) error { _, err := m.read(path, set); return err }, why: errWaiting}
	o := m.options(log)
	left := m.leftBy(f, err)
	switch {
	case left != nil:
		w.why, o.Unknown = errLost, true
		log.Error("the last good documents of the cluster cannot be read: the data plane goes on as it is, and this process waits for documents from etcd",
			"cluster", m.table.Name, "name", left.name)
	case err == nil:
		log.Warn("there are no last good documents of the cluster: the node starts with its own file alone", "cluster", m.table.Name)
		return nil
	default:
		log.Warn("the file alone is not whole, and there are no last good documents of the cluster: waiting for it", "cluster", m.table.Name, "err", err)
	}
	defer tellWaiting(m.table.Name)()
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	w.found = cancel
	o.Plane = w
	var a *agent.Agent
	if left != nil {
		o.Changed = func() { left.publish(a.View, log) }
		defer left.close()
	}
	a = agent.New(o)
	if left != nil {
		o.Changed()
	}
	a.Run(waits)
	switch {
	case w.set == nil && ctx.Err() != nil:
		return nil //nolint:nilerr // the end was asked for
	case w.set == nil:
		return fmt.Errorf("the cluster %s has had no documents for this node: %w", m.table.Name, w.why)
	}
	m.start = w.set
	return nil
}

// left is a data plane that goes on while the process of its node waits.
type left struct {
	member *member
	up     *up
	name   string
	id     uint64

	mu     sync.Mutex
	writer *runstate.Writer
	failed bool
}

// leftBy returns the data plane that a process before has left, if the documents that it may run are lost, and otherwise nil. f is the node's
// own file, unless that has err.
func (m *member) leftBy(f stage.File, err error) *left {
	if !m.lost || err != nil {
		return nil
	}
	u, inst := unserved(f)
	if inst == nil {
		return nil
	}
	defer inst.Close()
	return &left{member: m, up: u, name: u.name, id: inst.ID(), writer: inforce.NewWriter(inst.NetNS(), u.name)}
}

// unserved opens the data plane of a file if it is there and no process serves it. Otherwise inst is nil.
func unserved(f stage.File) (u *up, inst *datapath.Instance) {
	u = &up{file: f, name: f.Node.Name}
	var err error
	if u.plans, err = u.plan(); err == nil {
		_ = u.place() // the name is known all the same, and the start says what is wrong
	}
	inst, err = datapath.OpenHere(u.name)
	if err != nil || inst == nil { // the start says why it cannot be opened
		return u, nil
	}
	if inst.Served() { // by another process: the start says so
		inst.Close()
		return u, nil
	}
	return u, inst
}

// checkLost refuses to attach with the file at path alone where a data plane goes on that may run documents which are lost.
func checkLost(path string, n *config.Node) error {
	k := knownCluster(path)
	if k == nil || !errors.Is(k.problem, lastgood.ErrLost) {
		return nil
	}
	u, inst := unserved(stage.File{Path: path, Node: n})
	if inst == nil {
		return nil
	}
	inst.Close()
	return fmt.Errorf("%w: data plane %s may run them and is left as it is: 'culvert run' has it follow the cluster again, 'culvert detach' ends it", k.problem, u.name)
}

// publish has status and doctor show why the process waits.
func (l *left) publish(view func() agent.View, log *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.up.inForce()
	s.Cluster = l.member.standing(view())
	s.Cluster.Waits = true
	err := l.writer.Write(l.id, s)
	if err != nil && !l.failed {
		log.Warn("'culvert status' does not say that this process waits", "err", err)
	}
	l.failed = err != nil
}

func (l *left) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writer.Close()
}

// tellWaiting tells systemd that the start goes on, until the function that it returns is called.
func tellWaiting(cluster string) (done func()) {
	const period, more = 30 * time.Second, 2 * time.Minute
	unit := systemd.New()
	unit.Status("waits for documents of cluster " + cluster)
	unit.Extend(more)
	tick, end := time.NewTicker(period), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-tick.C:
				unit.Extend(more)
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		work.Wait()
		tick.Stop()
	}
}
