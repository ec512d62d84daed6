// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// publishPeriod is the time between two updates of states for commands and metrics.
const publishPeriod = 500 * time.Millisecond

// publisher stores a state of the process, for commands and metrics, until end is called.
type publisher struct {
	end func()

	mu   sync.Mutex
	inst *datapath.Instance
}

// follow publishes for a newer instance of the same data plane.
func (p *publisher) follow(inst *datapath.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inst = inst
}

// newPublisher publishes what now returns as state of a kind, as long as it returns true. what names it in the log.
func newPublisher[T any](kind, what string, now func() (T, bool), inst *datapath.Instance, log *slog.Logger) *publisher {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p := &publisher{inst: inst, end: func() { cancel(); <-done }}
	writer := runstate.NewWriter(kind, inst.NetNS(), inst.Name())
	go func() {
		defer close(done)
		defer writer.Close()
		ticker := time.NewTicker(publishPeriod)
		defer ticker.Stop()
		var last T
		var plane uint64 // the ID that last was written for; it changes when the data plane is detached and attached again
		var failed bool
		for {
			p.mu.Lock()
			id := p.inst.ID()
			p.mu.Unlock()
			state, ok := now()
			if ok && id != 0 && (id != plane || !reflect.DeepEqual(state, last)) {
				err := writer.Write(id, state)
				if err != nil && !failed {
					log.Warn("the state of "+what+" cannot be published for 'culvert lb show'", "err", err)
				}
				if failed = err != nil; !failed {
					last, plane = state, id
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return p
}
