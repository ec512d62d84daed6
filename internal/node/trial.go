// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/api"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/filestamp"
	"culvert/internal/stage"
)

// trial is a configuration that goes back to the one before unless somebody keeps it in time.
type trial struct {
	until time.Time
	timer *time.Timer
	back  earlier
	// failed is the last error of going back, "" for none.
	failed string
}

// earlier is a configuration that was in force. Its plans keep what the files had then.
type earlier struct {
	file   stage.File
	plans  []stage.Plan
	stamps []filestamp.Stamp
	readAt time.Time
	set    *lastgood.Set
	// overlaid takes out what urgent changes have added to the plans that have ended since.
	overlaid func(*datapath.Instance) error
}

// over returns a channel that tells when the time is over. It never does so without a trial.
func (t *trial) over() <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.timer.C
}

// lastKept returns the configuration to go back to: the last one that needs no confirmation.
func (p *process) lastKept() earlier {
	if p.trial != nil {
		return p.trial.back
	}
	return earlier{p.up.file, p.up.plans, p.up.stamps, p.up.readAt, p.up.set, p.up.overlaid}
}

// tryFor begins a trial of the configuration in force. With wait 0 there is none, and the configuration stays.
func (p *process) tryFor(wait time.Duration, back earlier) *time.Time {
	p.endTrial()
	if wait <= 0 {
		return nil
	}
	p.trial = &trial{until: time.Now().Add(wait), timer: time.NewTimer(wait), back: back}
	p.states.until(&p.trial.until)
	return &p.trial.until
}

// endTrial ends a trial: the configuration stays.
func (p *process) endTrial() {
	if p.trial == nil {
		return
	}
	p.trial.timer.Stop()
	p.trial = nil
	p.states.until(nil)
}

// keep does what a request with Keep asks for.
func (p *process) keep() (*api.Reloaded, error) {
	if p.trial == nil {
		return nil, errors.New("nothing to keep: no reload waits for that")
	}
	p.endTrial()
	p.log.Info("the configuration is kept")
	return &api.Reloaded{Name: p.up.name, File: p.up.file.Path, Changes: []string{}, Notes: []string{}}, nil
}

// errNotKept says why the files differ from what is in force after a trial.
var errNotKept = errors.New("nobody has kept the configuration in time ('culvert reload --keep'), and the one before is in force again")

// backPeriod is the time between two attempts to go back.
const backPeriod = 5 * time.Second

// goBack brings the last configuration that needs no confirmation into force again.
func (p *process) goBack(ctx context.Context) {
	back := p.trial.back
	next := &up{
		file: back.file, plans: back.plans, name: p.up.name, stamps: back.stamps, readAt: back.readAt, cluster: p.cluster, set: back.set,
		overlaid: back.overlaid,
	}
	err := next.place()
	if err == nil {
		err = p.check(next, func(error) {})
	}
	if err == nil {
		_, err = p.apply(ctx, next)
	}
	if err != nil {
		err = fmt.Errorf("nobody has kept the configuration in time, and going back to the one before failed, which is tried again: %w",
			config.All(err)[0])
		p.reloaded(err)
		if text := err.Error(); text != p.trial.failed {
			p.trial.failed = text
			p.log.Error(text)
		}
		p.trial.timer.Reset(backPeriod)
		return
	}
	p.endTrial()
	p.clusterRuns()
	p.reloaded(errNotKept) // what the file says is not in force
	text := "nobody has kept the configuration in time: the one before is in force again"
	if now := p.up.inForce(); len(now.Differs()) > 0 { // not after a trial of files that had not changed
		text += ", and the file differs from it"
	}
	p.log.Warn(text, "file", p.up.file.Path)
}
