// SPDX-License-Identifier: Apache-2.0

// Package agent keeps a node in step with its cluster: it has the node run the documents that it is to run, carries out urgent
// changes and maintenance, and reports the node's state. The node's data plane goes on whatever becomes of etcd.
//
// Four loops share what is known: one follows etcd, and one each brings revisions, urgent changes and maintenance into force. So a
// large configuration keeps no urgent change waiting outside of the data plane's own lock. A fifth reports.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
	"culvert/internal/cluster/lastgood"
)

// Plane is the data plane of a node. Its methods may be called at the same time.
type Plane interface {
	// Run checks a set of documents with the node's own file, and brings the result into force as a whole or not at all. An error says
	// why it was refused; what ran before goes on.
	Run(ctx context.Context, set *lastgood.Set) error
	// Urgent brings exactly these urgent changes into force, in the order of their IDs, and undoes others from before. It returns why
	// it could not carry out some of them, by ID: ErrUnconcerned if they are about what the node does not have.
	Urgent(ctx context.Context, changes []Held) map[string]error
	// Maintain withdraws the node's addresses, or with false announces them again. It may be called again and tells where that is:
	// one of cluster.Maintain*, "" when the node is not in maintenance.
	Maintain(ctx context.Context, on bool) (string, error)
	// State adds what the node knows of itself to a state: health, problems, stages, interfaces, backends, addresses.
	State(*cluster.State)
	// Answer answers a question.
	Answer(context.Context, cluster.Ask) cluster.Answer
}

// ErrUnconcerned says that an urgent change is about something that the node does not have. The node carries it out once it has.
var ErrUnconcerned = errors.New("the node does not have what the change is about")

// Held is an urgent change with the time until which it is in force at most.
type Held struct {
	cluster.Urgent
	// Until is on the clock of Clock, 0 for no end.
	Until time.Duration `json:"until,omitempty"`
}

// Clock is a clock that goes on while the machine sleeps, that nobody sets, and that begins anew when the machine starts.
func Clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // Linux has that clock
	}
	return time.Duration(t.Nano())
}

// Options of an agent.
type Options struct {
	Cluster, Node string
	Roles         []string
	// Host, Version and Instance are as in cluster.State.
	Host, Version, Instance string
	// Dead tells whether the process of an instance has ended. It returns false if it cannot know. It may be nil.
	Dead func(host, instance string) bool
	// Connect returns a client of etcd. Close says that the agent is to close it in the end.
	Connect func() (*clientv3.Client, error)
	// Certificate tells one certificate of the node from another, "" without one. A new one is taken up when etcd refuses the old one, or with
	// the next session. It may be nil.
	Certificate func() string
	// Probe says why no member of etcd lets this node in: an etcd.ShutError. It may be nil.
	Probe func(context.Context) error
	Close bool
	Plane Plane
	// Keep stores a set that runs. It may be nil.
	Keep func(*lastgood.Set) error
	// Fetch gets what the documents of a revision name, before they run: sets. It may be nil.
	Fetch func(context.Context, *clientv3.Client, cluster.Revision) error
	// Running is the set that runs already, nil for the node's own file alone. Held are the urgent changes in force.
	// Unknown says that the node runs something, and that nobody knows what: it is to run a revision of etcd, also one without documents.
	Running *lastgood.Set
	Unknown bool
	Held    []Held
	// Over are the urgent changes whose time was over before, and KeepOver stores which are. KeepOver may be nil.
	Over     []Over
	KeepOver func([]Over) error
	// Maintained says that the node was in maintenance before.
	Maintained bool
	// Changed is called after each change of what View returns. It may be nil.
	Changed func()
	Log     *slog.Logger
}

// Agent keeps a node in step.
type Agent struct {
	Options
	keys cluster.Keys

	// Signals to the loops that something has changed.
	revisions, urgents, maintains, reports signal
	// answering bounds how many questions are answered at the same time.
	answering chan struct{}
	// probed is when members were probed last, and shut what that has said. Only Run has them.
	probed time.Time
	shut   *etcd.ShutError

	mu     sync.Mutex
	client *clientv3.Client
	// certificate is the one that client was made with.
	certificate string
	want        want
	is          is
	// over are the urgent changes whose time is over, and overUnkept tells whether some of them are not stored.
	over       []Over
	overUnkept bool
}

// want is what etcd said last.
type want struct {
	// seen tells whether etcd has said anything since the start. Until then nothing is undone.
	seen       bool
	current    cluster.Current
	currentBad string // why the key current is none
	missing    bool   // whether there is no key current
	urgents    map[string]Held
	urgentsBad map[string]string // by ID
	maintain   bool
	// maintainBad is why the key of the node's maintenance is none.
	maintainBad string
	// second is the process that says to have this node's name, too.
	second cluster.Twin
}

// is is how the node is.
type is struct {
	running *lastgood.Set
	digest  string
	// refused says why the revision refusedNumber does not run.
	refused       string
	refusedNumber int64
	inForce       []string
	failed        map[string]string
	unconcerned   []string
	maintain      string
	// reached tells whether etcd answers, since when, and problem why it does not.
	reached bool
	since   time.Time
	problem string
	// told are the reasons that were logged since etcd was lost.
	told []string
	// confirmed is the revision that is known to be the same in this etcd as it runs here.
	confirmed int64
	// unread is why the documents of a revision could not be read when that was tried last.
	unread string
	// twin names the host of another process of this node's name, reportProblem says why the state is not written.
	twin, reportProblem string
	// second names the host of a process that has this node's name, too, and follows no revisions, while this one does.
	second string
	// denied is since when etcd refuses the node's certificate, the zero time if it does not. reportProblem says why.
	denied           time.Time
	keepProblem      string
	overProblem      string // why KeepOver has failed
	sessions, writes uint64
}

// New returns an agent that does nothing yet.
func New(o Options) *Agent {
	const answers = 2
	a := &Agent{Options: o, keys: cluster.KeysOf(o.Cluster), answering: make(chan struct{}, answers)}
	for _, s := range []*signal{&a.revisions, &a.urgents, &a.maintains, &a.reports} {
		*s = make(signal, 1)
	}
	a.is = is{confirmed: none, refusedNumber: none, running: o.Running, digest: o.Running.Digest(), since: time.Now(), problem: "not asked yet"}
	if o.Unknown {
		a.is.running = &lastgood.Set{Cluster: o.Cluster, Node: o.Node, Revision: none}
	}
	a.over = o.Over
	a.want.urgents = make(map[string]Held)
	for _, h := range o.Held {
		a.want.urgents[h.ID] = h
	}
	a.want.maintain = o.Maintained
	return a
}

// signal wakes a loop. Several signals before it wakes are one.
type signal chan struct{}

func (s signal) wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Run keeps the node in step until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	var work sync.WaitGroup
	for _, loop := range []func(context.Context){a.revisionLoop, a.urgentLoop, a.maintainLoop} {
		work.Go(func() { loop(ctx) })
	}
	defer a.disconnect()
	defer work.Wait()
	for failures := 0; ctx.Err() == nil; failures++ {
		begun := time.Now()
		err := a.session(ctx)
		if ctx.Err() != nil {
			return
		}
		a.lost(err)
		if time.Since(begun) > calm {
			failures = 0
		}
		var again *compactedError
		if errors.As(err, &again) || errors.Is(err, errRenewed) {
			failures = 0
		}
		pause(ctx, failures)
	}
}

// calm is after how long a session counts as one that has worked.
const calm = 10 * time.Second

// Pauses between sessions. They are random, so that the nodes of a fleet do not come back at the same moment.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 3 * time.Second
)

func pause(ctx context.Context, failures int) {
	most := mostPause
	if failures < 5 {
		most = min(firstPause<<failures, mostPause)
	}
	sleep(ctx, rand.N(most)+most/8)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (a *Agent) disconnect() {
	a.mu.Lock()
	client := a.client
	a.client = nil
	a.mu.Unlock()
	if client != nil && a.Close {
		_ = client.Close()
	}
}

// connected returns the client, nil if there is none yet.
func (a *Agent) connected() *clientv3.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client
}

// update changes what is known, and has it told where somebody looks.
func (a *Agent) update(change func(*is)) {
	a.mu.Lock()
	change(&a.is)
	a.mu.Unlock()
	a.reports.wake()
	if a.Changed != nil {
		a.Changed()
	}
}

// Again has the agent try again what was refused: the node's own file has changed.
func (a *Agent) Again() {
	a.mu.Lock()
	a.is.refusedNumber = none
	a.mu.Unlock()
	a.revisions.wake()
	a.urgents.wake()
	a.reports.wake()
}

// Runs tells the agent that the node runs a set, nil for its own file alone, for which the agent has not asked.
func (a *Agent) Runs(set *lastgood.Set) {
	a.update(func(i *is) { i.running, i.digest = set, set.Digest() })
	a.revisions.wake()
}

// none is the number of no revision.
const none = -1
