// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"path/filepath"
	"sync"
	"testing"

	"culvert/internal/host/trust"
)

// TestLockLookedAt takes the lock of a capture while others look whether somebody holds it, as status and the serving process do.
func TestLockLookedAt(t *testing.T) {
	path := filepath.Join(trust.RunDir, "capture-looked-at.lock")
	done := make(chan bool)
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if l, err := trust.TakeLock(path); err == nil {
					_ = l.Release()
				}
			}
		}
	})
	defer looking.Wait()
	defer close(done)
	for range 300 {
		l, err := takeLock(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
