// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// report is one call of Options.Report.
type report struct {
	id      uint32
	result  Result
	changed bool
}

var errAway = errors.New("no route")

// TestTimes checks when targets are probed and down. Ready fails, so no packets are sent, and the clock is that of synctest.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const targets, interval, fall = 4, 3 * time.Second, 3
		began := time.Now()
		at := make(map[uint32][]time.Duration)
		down := make(map[uint32]time.Duration)
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		c := New(ctx, Options{
			Ready: func(Target) error { return errAway },
			Report: func(id uint32, r Result, changed bool) {
				mu.Lock()
				defer mu.Unlock()
				at[id] = append(at[id], time.Since(began))
				if changed {
					down[id] = time.Since(began)
				}
			},
		})
		var all []Target
		for id := range uint32(targets) {
			all = append(all, Target{ID: id, Check: Check{Type: TCP, Interval: interval, Timeout: time.Second, Rise: 2, Fall: fall}})
		}
		c.Set(all)
		time.Sleep(10 * time.Second)
		c.Set(all) // changes nothing
		time.Sleep(2 * time.Second)
		cancel()
		c.Wait()
		for id := range uint32(targets) {
			first := time.Duration(id) * time.Second / targets
			want := []time.Duration{
				first, first + time.Second, first + 2*time.Second, // now the target is down
				first + 5*time.Second, first + 8*time.Second, first + 11*time.Second,
			}
			if !slices.Equal(at[id], want) {
				t.Errorf("target %d was probed at %v, want %v", id, at[id], want)
			}
			if down[id] != first+2*time.Second {
				t.Errorf("target %d is down after %v, want %v", id, down[id], first+2*time.Second)
			}
		}
		if r := c.results()[0]; r.State != Down || r.Checks != 6 || r.Failures != 6 || r.Text != "no route" || !r.Since.Equal(began.Add(2*time.Second)) {
			t.Errorf("%+v", r)
		}
	})
}

// results returns the results of all targets by ID.
func (c *Checker) results() map[uint32]Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[uint32]Result, len(c.targets))
	for id, r := range c.targets {
		all[id] = r.known()
	}
	return all
}

// newChecker returns a Checker, and a channel with its reports.
func newChecker(t *testing.T, o Options) (*Checker, chan report) {
	t.Helper()
	reports := make(chan report, 1000)
	o.Report = func(id uint32, r Result, changed bool) { reports <- report{id, r, changed} }
	ctx, cancel := context.WithCancel(t.Context())
	c := New(ctx, o)
	t.Cleanup(func() {
		cancel()
		c.Wait()
	})
	return c, reports
}

// until waits for a report for which is returns true, and returns it.
func until(t *testing.T, reports chan report, what string, is func(report) bool) report {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case r := <-reports:
			if is(r) {
				return r
			}
		case <-deadline:
			t.Fatalf("no report of %s", what)
		}
	}
}

// changes returns a function that reports whether a report is a change of a target to a state.
func changes(id uint32, s State) func(report) bool {
	return func(r report) bool { return r.id == id && r.changed && r.result.State == s }
}

// quick is a check with the shortest interval.
var quick = Check{Type: HTTP, Interval: MinInterval, Timeout: MinInterval, Rise: 2, Fall: 2, Path: "/", Status: "200"}

// TestChanges has a server fail and recover.
func TestChanges(t *testing.T) {
	var well atomic.Int64
	well.Store(200)
	at := serveHTTP(t, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(well.Load())) })
	c, reports := newChecker(t, Options{})
	c.Set([]Target{{ID: 7, Addr: at, Check: quick}})
	until(t, reports, "up", changes(7, Up))
	well.Store(503)
	r := until(t, reports, "down", changes(7, Down))
	if r.result.Text != "HTTP status 503, not 200" || r.result.Failures < 2 || time.Since(r.result.Since) > patience {
		t.Errorf("%+v", r.result)
	}
	well.Store(200)
	r = until(t, reports, "up again", changes(7, Up))
	if r.result.Text == "" {
		t.Errorf("the last failure is forgotten: %+v", r.result)
	}
	if got := c.results()[7]; got.State != Up {
		t.Errorf("%+v", got)
	}
}

// TestSet replaces targets. Results of targets are kept.
func TestSet(t *testing.T) {
	at := closedPort(t, "tcp")
	c, reports := newChecker(t, Options{})
	one := Target{ID: 1, Addr: at, Check: quick}
	known := Target{ID: 2, Addr: at, Check: quick, Known: Result{State: Up, Since: time.Unix(1, 0), Checks: 100}}
	c.Set([]Target{one, known})
	r := until(t, reports, "a known one", func(r report) bool { return r.id == 2 })
	if r.result.State != Up || r.result.Checks != 101 {
		t.Fatalf("the known result is lost: %+v", r.result)
	}
	until(t, reports, "one down", changes(1, Down))
	before := c.results()[1]
	// The target gets another check and keeps its result.
	other := one
	other.Check.Rise = 3
	other.Known = Result{State: Up}
	c.Set([]Target{other})
	if got := c.results(); len(got) != 1 || got[1].State != Down || got[1].Checks < before.Checks || !got[1].Since.Equal(before.Since) {
		t.Fatalf("%+v, before %+v", got, before)
	}
	until(t, reports, "the next check", func(r report) bool { return r.id == 1 && r.result.Checks > before.Checks+1 })
	c.Set(nil)
	c.Wait() // there are no targets
	if got := c.results(); len(got) != 0 {
		t.Errorf("%+v is left", got)
	}
}

// TestSetUnderWay replaces the targets again and again while they are probed.
func TestSetUnderWay(t *testing.T) {
	at := serveTCP(t, silent)
	var reports atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	c := New(ctx, Options{Report: func(uint32, Result, bool) { reports.Add(1) }})
	check := Check{Type: TCP, Interval: MinInterval, Timeout: MinInterval, Rise: 1, Fall: 5}
	for n := 0; n < 200 || reports.Load() < 500; n++ {
		var targets []Target
		for id := range uint32(20) {
			if (n>>(id%5))&1 == 0 {
				targets = append(targets, Target{ID: id, Addr: at, Check: check})
			}
		}
		c.Set(targets)
		if got := len(c.results()); got != len(targets) {
			t.Fatalf("%d targets, not %d", got, len(targets))
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	c.Wait()
}

// TestReady has a Ready that returns an error, which is then the failure of the probe.
func TestReady(t *testing.T) {
	at := serveTCP(t, silent)
	var away atomic.Bool
	away.Store(true)
	c, reports := newChecker(t, Options{Ready: func(to Target) error {
		if away.Load() {
			return fmt.Errorf("no route to %v", to.Addr.Addr())
		}
		return nil
	}})
	c.Set([]Target{{ID: 1, Addr: at, Check: Check{Type: TCP, Interval: MinInterval, Timeout: MinInterval, Rise: 1, Fall: 1}}})
	if r := until(t, reports, "down", changes(1, Down)); r.result.Text != "no route to 127.0.0.1" {
		t.Errorf("%+v", r.result)
	}
	away.Store(false)
	until(t, reports, "up", changes(1, Up))
}

// TestBothFamilies probes an IPv6 address. Other tests probe IPv4 addresses.
func TestBothFamilies(t *testing.T) {
	c, reports := newChecker(t, Options{})
	at := serveTCPAt(t, "[::1]:0", silent)
	c.Set([]Target{{ID: 1, Addr: at, Check: Check{Type: TCP, Interval: MinInterval, Timeout: MinInterval, Rise: 1, Fall: 1}}})
	until(t, reports, "up", changes(1, Up))
}

// TestLate: a probe that does not end is late after its timeout and late, and nothing is late before or after it.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		var held atomic.Bool
		c := New(ctx, Options{
			Report: func(uint32, Result, bool) {},
			Ready: func(Target) error {
				if held.Load() {
					<-hold
				}
				return errAway
			},
		})
		expect := func(want bool, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			if got := c.Late(time.Now()); got != want {
				t.Errorf("late is %v, want %v", got, want)
			}
		}
		expect(false, 0)
		c.Set([]Target{{Check: Check{Type: TCP, Interval: 3 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}}})
		expect(false, time.Minute)
		held.Store(true)
		expect(false, 3*time.Second) // the longest pause
		expect(true, time.Second+late+time.Millisecond)
		close(hold)
		expect(false, time.Millisecond)
		cancel()
		c.Wait()
	})
}
