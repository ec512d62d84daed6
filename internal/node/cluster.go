// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/etcd"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/sets"
	"culvert/internal/cluster/urgent"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterstage"
	"culvert/internal/host/trust"
	"culvert/internal/stage"
	"culvert/internal/stages"
	"culvert/internal/version"
)

// member is this node as a part of its cluster. A nil member is a node without one.
type member struct {
	table  *config.Cluster
	lock   *trust.Lock
	store  lastgood.Store
	keeper *urgent.Keeper
	// over are the urgent changes whose time is over.
	over []agent.Over
	// start is the set to start with, nil for the node's own file alone.
	start    *lastgood.Set
	problems stateProblems
	// lost tells that none of the last good documents can be read.
	lost bool
	// maintained tells whether the node's addresses are withheld.
	maintained atomic.Bool
	agent      *agent.Agent
	// view returns how the node stands with its cluster, and publishing is held while that is published.
	view       func() agent.View
	publishing sync.Mutex
	// running returns the documents that a process runs. It is nil before there is one.
	running func() *lastgood.Set
}

// Files of the state directory beside the last good documents.
const (
	lockFile     = "lock"
	journalFile  = "urgent"
	overFile     = "urgent-over"
	maintainFile = "maintained"
)

// stateProblems say, each in one line, what of the state directory is not as it should be.
type stateProblems struct {
	mu sync.Mutex
	// documents are about the last good ones, and end once these are whole. Others stay until a start.
	documents, others []string
}

// add adds to one of the lists of s.
func (s *stateProblems) add(to *[]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, strings.ReplaceAll(err.Error(), "\n", "; "))
}

func (s *stateProblems) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.documents, s.others)
}

// endProblems forgets what was wrong with the last good documents once etcd has said that what runs is to run, and the disk has it whole.
func (m *member) endProblems(v agent.View, log *slog.Logger) {
	s := &m.problems
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.documents) == 0 || !v.Confirmed || v.KeepProblem != "" {
		return
	}
	if set, err := m.store.Load(m.table.Name, m.table.Node); err != nil || set == nil || set.Revision != v.Revision {
		return
	}
	s.documents = nil
	log.Info("the last good documents are whole again", "cluster", m.table.Name, "revision", v.Revision)
}

// joinCluster reads what the node knows of its cluster. It returns nil if the file at path has no [cluster]. It does not wait for etcd.
func joinCluster(path string, log *slog.Logger) (*member, error) {
	table, err := config.ReadCluster(path)
	if err != nil || table == nil {
		return nil, err
	}
	if err := checkCertificate(table); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(table.StateDir, 0o700); err != nil {
		return nil, table.Locate("state_dir", fmt.Errorf("making the state directory of the cluster: %w", err))
	}
	m := &member{table: table, store: lastgood.In(table.StateDir)}
	if m.lock, err = trust.TakeLock(m.path(lockFile)); err != nil {
		if errors.Is(err, trust.ErrLocked) {
			err = &heldError{table.StateDir, trust.HolderName(m.path(lockFile))}
		}
		return nil, table.Locate("state_dir", err)
	}
	note := func(of *[]string, err error) {
		if err != nil {
			m.problems.add(of, err)
			log.Error("the state directory of the cluster is not whole", "err", err)
		}
	}
	m.start, err = m.store.Load(table.Name, table.Node)
	m.lost = errors.Is(err, lastgood.ErrLost)
	note(&m.problems.documents, err)
	m.keeper, err = urgent.Open(m.path(journalFile))
	note(&m.problems.others, err)
	m.over, err = urgent.ReadOver(m.path(overFile))
	note(&m.problems.others, err)
	_, err = os.Stat(m.path(maintainFile))
	m.maintained.Store(err == nil)
	return m, nil
}

// heldError says that a process has the state directory.
type heldError struct{ dir, by string }

func (e *heldError) Error() string {
	return fmt.Sprintf("the state directory %s is that of %s: give each data plane its own with state_dir", e.dir, e.by)
}

func (m *member) path(name string) string { return filepath.Join(m.table.StateDir, name) }

// close releases the state directory.
func (m *member) close() {
	if m != nil {
		_ = m.lock.Release()
	}
}

// withheld tells whether the node announces nothing for now.
func (m *member) withheld() bool { return m != nil && m.maintained.Load() }

// read reads the configuration at path with the documents of a set behind it.
func (m *member) read(path string, set *lastgood.Set) (stage.File, error) {
	var more []config.Remote
	if m != nil {
		more = set.Remotes(m.table.SetsDir())
	}
	n, err := stages.Load(path, more...)
	return stage.File{Path: path, Node: n}, err
}

// options returns those of an agent, without its plane.
func (m *member) options(log *slog.Logger) agent.Options {
	host, _ := os.Hostname() // "" is told as well
	return agent.Options{
		Cluster: m.table.Name, Node: m.table.Node, Roles: m.table.Roles, Host: host, Version: version.Short(), Instance: instance(), Dead: dead,
		Connect: func() (*clientv3.Client, error) { return etcd.Connect(m.table) }, Probe: etcd.ProbeOf(m.table), Close: true,
		Certificate: m.certificate,
		Keep:        m.store.Save, Fetch: sets.For(m.table.Name, m.table.Node, m.table.Roles, m.table.SetsDir(), m.keptSets), Running: m.start, Held: m.keeper.Held(),
		Over: m.over, KeepOver: m.keepOver, Maintained: m.maintained.Load(), Log: log,
	}
}

// certificate tells the node's certificate from others, "" without one.
func (m *member) certificate() string {
	if m.table.TLS == nil {
		return ""
	}
	return etcd.PairID(m.table.TLS)
}

// keepOver stores which urgent changes are over, also for the agent that follows one which has waited for documents.
func (m *member) keepOver(all []agent.Over) error {
	m.over = all
	return urgent.WriteOver(m.path(overFile), all)
}

// keptSets returns the hashes of the sets that stay on disk, whatever is fetched.
func (m *member) keptSets() []string {
	hashes := m.store.Sets()
	if m.running != nil {
		if set := m.running(); set != nil {
			hashes = append(hashes, set.Sets...)
		}
	}
	return hashes
}

// started keeps the set that the node has started with, which it may not have run before.
func (m *member) started(log *slog.Logger) {
	if m == nil || m.start == nil {
		return
	}
	if err := m.store.Save(m.start); err != nil {
		m.problems.add(&m.problems.documents, err)
		log.Error("the next start may begin with older documents", "err", err)
	}
}

// overlay adds the urgent changes in force to plans that are about to come into force on the data plane of a name. Those of another data
// plane are forgotten first. The function that it returns is to be called once the plans are in force.
func (m *member) overlay(name string, plans []stage.Plan) (inForce func(*datapath.Instance) error) {
	nothing := func(*datapath.Instance) error { return nil }
	if m == nil {
		return nothing
	}
	running, err := datapath.OpenHere(name)
	switch {
	case err != nil: // the check of the plans says so
	case running == nil:
		m.keeper.Renew(0)
	default:
		m.keeper.Renew(running.ID())
		running.Close()
	}
	if p, ok := planned[*filterstage.Plan](plans); ok {
		return m.keeper.Overlay(p)
	}
	return nothing
}

// again has the urgent changes in force that a configuration has taken back which has just come into force.
func (m *member) again(ctx context.Context, u *up, log *slog.Logger) {
	if m == nil || u.inst == nil {
		return
	}
	if err := u.overlaid(u.inst); err != nil {
		log.Error("urgent changes may stay after a restart", "err", err)
	}
	for id, err := range m.keeper.Again(ctx, u.inst) {
		if errors.Is(err, agent.ErrUnconcerned) {
			log.Info("an urgent change is about what this node has no more", "id", id)
			continue
		}
		log.Error("an urgent change is not in force any more: it is tried again", "id", id, "err", err)
	}
}

// once is again without a process, which would end the changes for a time: those whose time is over are undone now.
func (m *member) once(ctx context.Context, u *up, log *slog.Logger) {
	m.again(ctx, u, log)
	if m == nil || u.inst == nil {
		return
	}
	all, now := m.keeper.Held(), agent.Clock()
	var due []agent.Held
	for _, h := range all {
		if h.Until > 0 && h.Until <= now {
			m.over, _ = agent.AddOver(m.over, agent.OverOf(h.Urgent))
			continue
		}
		due = append(due, h)
	}
	if len(due) == len(all) {
		return
	}
	if err := m.keepOver(m.over); err != nil {
		log.Error("urgent changes whose time is over may come back with the next process", "err", err)
	}
	for id, err := range m.keeper.Bring(ctx, u.inst, due) {
		if errors.Is(err, agent.ErrUnconcerned) {
			continue
		}
		log.Error("an urgent change is not as it should be: the next process tries again", "id", id, "err", err)
	}
}

// sameCluster tells whether a file says what the process has begun with.
func sameCluster(is *config.Cluster, m *member) bool {
	if is == nil || m == nil {
		return is == nil && m == nil
	}
	was := *m.table
	now := *is
	was.Position, now.Position = config.Position{}, config.Position{}
	return reflect.DeepEqual(was, now)
}

// clusterAgain has the agent try again what was refused: the node's own file has changed.
func (p *process) clusterAgain() {
	if p.cluster != nil {
		p.cluster.agent.Again()
	}
}

// clusterRuns tells the agent which documents run, after those before have come back by themselves.
func (p *process) clusterRuns() {
	if p.cluster != nil {
		p.cluster.agent.Runs(p.up.set)
	}
}

// loadKnown loads the configuration at path as a process would start with it: with the last good documents of its cluster.
func loadKnown(path string) (*config.Node, error) {
	return stages.Load(path, knownCluster(path).remotes()...)
}

// known is what is known of a node's cluster without asking it.
type known struct {
	table *config.Cluster
	set   *lastgood.Set
	// problem says why the last good documents are not used.
	problem error
}

// knownCluster reads the table and the last good documents. It returns nil if there is no table, or if it has errors, which loading tells.
func knownCluster(path string) *known {
	table, err := config.ReadCluster(path)
	if err != nil || table == nil {
		return nil
	}
	k := &known{table: table}
	k.set, k.problem = lastgood.In(table.StateDir).Load(table.Name, table.Node)
	return k
}

func (k *known) remotes() []config.Remote {
	if k == nil {
		return nil
	}
	return k.set.Remotes(k.table.SetsDir())
}

// note says which documents a look without a start has taken.
func (k *known) note() error {
	switch {
	case k == nil:
		return nil
	case k.set == nil && k.problem != nil:
		return fmt.Errorf("documents of cluster %s are not looked at: %w", k.table.Name, k.problem)
	case k.set == nil:
		return fmt.Errorf("documents of cluster %s are not looked at: this node has run none yet", k.table.Name)
	}
	return fmt.Errorf("documents of cluster %s are those that this node has run last, of revision %d: etcd was not asked", k.table.Name, k.set.Revision)
}
