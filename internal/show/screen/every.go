// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"context"
	"time"

	"culvert/internal/show/usage"
)

// minInterval keeps the sampling from taking CPU time away from packets.
const minInterval = 100 * time.Millisecond

// Check returns a usage error for an interval that is too short, or a negative count. The count 0 means without end.
func Check(interval time.Duration, count int) error {
	switch {
	case interval < minInterval:
		return usage.Errorf("interval %v: use %v or more", interval, minInterval)
	case count < 0:
		return usage.Errorf("count %d: use 1 or more", count)
	}
	return nil
}

// Every calls look after each interval, count times or, if count is 0, until ctx ends. It returns the first error of look, and
// nil if ctx ends. It is for commands that write lines instead of a live table.
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
