// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/log"
)

const (
	// logLimitEntries is how many entries a limitedLog writes at most in each logLimitPeriod.
	logLimitEntries = 5
	logLimitPeriod  = 10 * time.Second
)

// limitedLog writes to the log at a bounded rate. It is for events that any sender of packets can cause. The zero value
// is ready.
type limitedLog struct {
	// write is log.Error if it is nil.
	write func(message string, fields ...any)

	mu sync.Mutex
	// begun is when the current period began, written how many entries it has had.
	begun   time.Time
	written int
	// leftOut counts the entries that were not written since the last one that was.
	leftOut int
}

func (s *limitedLog) log(message string, fields ...any) { s.logAt(time.Now(), message, fields...) }

func (s *limitedLog) logAt(now time.Time, message string, fields ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.begun) >= logLimitPeriod {
		s.begun, s.written = now, 0
	}
	if s.written == logLimitEntries {
		s.leftOut++
		return
	}
	s.written++
	if s.leftOut > 0 {
		fields = append(fields, "left_out", s.leftOut)
		s.leftOut = 0
	}
	write := s.write
	if write == nil {
		write = log.Error
	}
	write(message, fields...)
}
