// SPDX-License-Identifier: Apache-2.0

// Package testbed is what tests of several packages are made of.
package testbed

import (
	"strings"
	"sync"
)

// Output keeps what is written to it. It may be read while others write; the zero value is empty.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is all that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
