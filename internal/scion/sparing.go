// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/log"
)

const (
	// sparingEntries is how many entries a sparing log writes in each sparingPeriod at most.
	sparingEntries = 5
	sparingPeriod  = 10 * time.Second
)

// sparing writes to the log what strangers can cause, at a bounded rate. The zero value is ready.
type sparing struct {
	// write is log.Error if it is nil.
	write func(message string, fields ...any)

	mu            sync.Mutex
	begun         time.Time
	written, left int
}

func (s *sparing) log(message string, fields ...any) { s.logAt(time.Now(), message, fields...) }

func (s *sparing) logAt(now time.Time, message string, fields ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.begun) >= sparingPeriod {
		s.begun, s.written = now, 0
	}
	if s.written == sparingEntries {
		s.left++
		return
	}
	s.written++
	if s.left > 0 {
		fields = append(fields, "left_out", s.left)
		s.left = 0
	}
	write := s.write
	if write == nil {
		write = log.Error
	}
	write(message, fields...)
}
