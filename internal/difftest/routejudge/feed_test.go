// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"culvert/internal/route"
)

// stale is how long the fast path may use a route after the kernel has changed it. The mirror's deadline is shorter.
const stale = 100 * time.Millisecond

// controlPlane is a running control plane.
type controlPlane struct {
	stop func()
	done chan error
}

// startControlPlane starts a control plane that ends with the test. It waits until the mirror is current.
func (c *culvert) startControlPlane(o route.Options) *controlPlane {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &controlPlane{stop: cancel, done: make(chan error, 1)}
	synced := make(chan struct{})
	if o.Status == nil {
		o.Status = &route.Status{}
	}
	c.status = o.Status
	o.Plane, o.OnSynced = c.plane, func() { close(synced) }
	go func() {
		f.done <- inNamespace(c.twin, func() error { return route.Run(ctx, o) })
	}()
	t.Cleanup(func() { f.end(t) })
	select {
	case <-synced:
	case err := <-f.done:
		f.done <- err
		t.Fatalf("the control plane ends early: %v", err)
	case <-time.After(patience):
		t.Fatal("the control plane has not read the tables")
	}
	check(t, waitFor(t, "the mirror being written", func() bool { return written(o.Status) }))
	return f
}

// written reports whether the mirror is complete and, where this host allows it, current.
func written(s *route.Status) bool {
	now := s.Load()
	for _, f := range []route.FamilyStats{now.IPv4, now.IPv6} {
		if !f.Current && f.Reason != "policy rules" && f.Reason != "ip_forward_use_pmtu" {
			return false
		}
	}
	return true
}

// inNamespace runs f on a locked thread in a router's namespace. The thread ends with the goroutine.
func inNamespace(w *twin, f func() error) error {
	runtime.LockOSThread() // never unlocked
	if err := netns.Set(w.router); err != nil {
		return err
	}
	return f()
}

// end stops the control plane. The program stays attached.
func (f *controlPlane) end(t *testing.T) {
	f.stop()
	select {
	case err := <-f.done:
		f.done <- err
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the control plane: %v", err)
		}
	case <-time.After(patience):
		t.Error("the control plane does not end")
	}
}

// TestMirror judges the program with a mirror that a control plane keeps current.
func TestMirror(t *testing.T) {
	for _, group := range groupScenarios(scenarios) {
		t.Run(group[0].name, func(t *testing.T) {
			tr := newTrial(t, group[0], 5, func(w *twin) *culvert { return attach(w, smallMirror) })
			for n, s := range group {
				if n > 0 {
					tr.begin(s)
				}
				f := tr.fast.startControlPlane(route.Options{})
				for range 2 {
					tr.all(50, tr.fast.fate)
					tr.churn(50)
					time.Sleep(stale)
				}
				tr.report()
				f.end(t)
				tr.end()
			}
		})
	}
}
