// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// maintainPeriod is how often the node looks whether it may be stopped.
const maintainPeriod = 500 * time.Millisecond

// maintainLoop brings the node into maintenance and out of it.
func (a *Agent) maintainLoop(ctx context.Context) {
	told := ""
	for {
		a.mu.Lock()
		on := a.want.maintain
		a.mu.Unlock()
		where, err := a.Plane.Maintain(ctx, on)
		if ctx.Err() != nil {
			return
		}
		if text := ""; err != nil {
			if text = oneLine(err); text != told {
				a.Log.Error("maintenance does not go on: this is tried again", "err", text)
			}
			told = text
		} else {
			told = ""
		}
		a.mu.Lock()
		was := a.is.maintain
		a.mu.Unlock()
		if was != where {
			a.Log.Info("maintenance of the node", "is", or(where, "over"))
			a.update(func(i *is) { i.maintain = where })
		}
		period := time.Hour
		if on || err != nil {
			period = maintainPeriod
		}
		wait := time.NewTimer(period)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-a.maintains:
		case <-wait.C:
		}
		wait.Stop()
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
