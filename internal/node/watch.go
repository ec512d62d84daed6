// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/pins"
	"culvert/internal/host/pulse"
	"culvert/internal/host/systemd"
	"culvert/internal/stage"
)

const (
	// watchPeriod is the time between two looks at a process. Its start is over at most so long after packets flow.
	watchPeriod = 250 * time.Millisecond
	// keepersWithin bounds the turns of the loops that keep an instance in step, which come each second, unless another command
	// holds the edit lock.
	keepersWithin = pins.LockWait + 15*time.Second
	// loopPeriod is how often the process's own loop turns at least, and loopWithin bounds its turns. The longest are the steps of
	// a reload, which read sets with millions of entries, load programs, and wait for the edit lock.
	loopPeriod = time.Second
	loopWithin = pins.LockWait + 2*time.Minute
	// startExtension is how much time a start asks for, as long as its loops turn.
	startExtension = 30 * time.Second
)

// watch tells systemd how a process is: ready once packets flow, alive as long as all its loops turn.
type watch struct {
	systemd *systemd.Notifier
	log     *slog.Logger
	// period is the time within which systemd expects a sign of life, 0 if it expects none.
	period time.Duration
	// refresh and ports are the loops that keep the instance in step.
	refresh, ports *pulse.Pulse
	// loop is the process's own.
	loop *pulse.Pulse

	mu     sync.Mutex
	served map[string]stage.Watched

	// The fields below belong to the goroutine of loop.
	fed      time.Time
	extended time.Time
	logged   string
}

func newWatch(log *slog.Logger) *watch {
	return &watch{
		systemd: systemd.New(), log: log, period: systemd.WatchdogPeriod(), served: make(map[string]stage.Watched),
		refresh: pulse.New("the loop that refreshes the state of interfaces", keepersWithin),
		ports:   pulse.New("the loop that follows interfaces", keepersWithin),
		loop:    pulse.New("the loop that reloads configurations", loopWithin),
	}
}

// serves notes that a stage begins to be served.
func (w *watch) serves(p stage.Prepared) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.served, p.Name())
	if watched, ok := p.(stage.Watched); ok {
		w.served[p.Name()] = watched
	}
}

// only forgets all stages but these, which are served.
func (w *watch) only(servers []*server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.served {
		if !slices.ContainsFunc(servers, func(s *server) bool { return s.Name() == name }) {
			delete(w.served, name)
		}
	}
}

// alive returns an error if a loop of the process does not turn.
func (w *watch) alive() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := []error{pulse.Alive(w.refresh, w.ports, w.loop)}
	for name, s := range w.served {
		if err := s.Alive(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// begin looks at the process from now on, until end is called.
func (w *watch) begin(states *stageStates) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchPeriod)
		defer tick.Stop()
		for {
			w.look(states.now(), time.Now())
			select {
			case <-done:
				w.systemd.Stopping()
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-ended }
}

// situation is what a process does.
type situation struct {
	name   string
	plane  bool                  // whether there is a data plane
	on     []string              // the interfaces it is attached to
	stages []datapath.StageState // those that are on
}

// now returns what the process does.
func (s *stageStates) now() situation {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := situation{name: s.name, plane: s.inst != nil}
	for _, state := range s.states {
		if s.on[state.Stage] || state.State == datapath.StageOut {
			now.stages = append(now.stages, state)
		}
	}
	if now.plane {
		now.on = s.inst.AttachedNow()
	}
	return now
}

// flows tells whether packets go the way that the configuration asks for. A stage that is out does not come back by itself, so
// that nothing waits for it.
func (s situation) flows() bool {
	for _, st := range s.stages {
		if st.State == datapath.StageStarting {
			return false
		}
	}
	return !s.plane || len(s.on) > 0
}

// String returns the situation in one line.
func (s situation) String() string {
	var b strings.Builder
	b.WriteString(s.name)
	switch {
	case !s.plane:
		b.WriteString(", slow path alone")
	case len(s.on) == 0:
		b.WriteString(" on no interface")
	default:
		b.WriteString(" on " + strings.Join(s.on, ", "))
	}
	for i, st := range s.stages {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + st.Stage + " " + st.State)
		if st.Why != "" {
			b.WriteString(" (" + st.Why + ")")
		}
	}
	return b.String()
}

// look tells systemd what there is to tell.
func (w *watch) look(now situation, at time.Time) {
	err := w.alive()
	status := now.String()
	if err != nil {
		status = "not alive: " + strings.ReplaceAll(err.Error(), "\n", "; ") + "; " + status
	}
	w.systemd.Status(status)
	w.logOnce(err)
	if err != nil {
		return
	}
	switch {
	case w.systemd.IsReady():
	case now.flows():
		w.systemd.Ready()
	case at.Sub(w.extended) >= startExtension/4:
		w.extended = at
		w.systemd.Extend(startExtension)
	}
	if w.period > 0 && at.Sub(w.fed) >= w.period/4 {
		w.fed = at
		w.systemd.Watchdog()
	}
}

// logOnce logs when loops stop turning, and when they turn again.
func (w *watch) logOnce(err error) {
	switch {
	case err == nil && w.logged != "":
		w.logged = ""
		w.log.Info("all loops of the process turn again")
	case err != nil && w.logged == "":
		w.logged = err.Error()
		then := "start the process again"
		if w.period > 0 {
			then = "systemd starts the process again unless that changes"
		}
		w.log.Error("the process does not work as it should, and the data plane goes on with its last state: "+then, "err", err)
	}
}
