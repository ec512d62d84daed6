// SPDX-License-Identifier: Apache-2.0

package testbed

import "strings"

// CancelOn is a writer that calls Cancel for each line that begins with Prefix.
type CancelOn struct {
	Prefix string
	Cancel func()
}

// Write implements io.Writer.
func (c CancelOn) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), c.Prefix) {
		c.Cancel()
	}
	return len(line), nil
}
