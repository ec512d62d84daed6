// SPDX-License-Identifier: Apache-2.0

// Package testbed has network namespaces, devices, frames and traffic for the tests of several packages.
package testbed

import (
	"strings"
	"sync"
)

// Output is a writer that keeps all text. It may be read and written concurrently. The zero value is empty and ready to use.
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

// String returns the text that was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
