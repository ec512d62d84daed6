// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"context"
	"time"

	"culvert/internal/show/usage"
)

// minInterval leaves the machine time for packets.
const minInterval = 100 * time.Millisecond

// Check refuses what a command cannot watch by: how often to look, and how many times, 0 for endless.
func Check(interval time.Duration, count int) error {
	switch {
	case interval < minInterval:
		return usage.Errorf("interval %v: at least %v", interval, minInterval)
	case count < 0:
		return usage.Errorf("count %d: 0 is endless", count)
	}
	return nil
}

// Every calls look after each interval, count times or, with 0, until ctx ends: for lines in the place of a live table.
func Every(ctx context.Context, interval time.Duration, count int, look func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := look(); err != nil {
			return err
		}
	}
	return nil
}
