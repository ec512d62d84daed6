// SPDX-License-Identifier: Apache-2.0

// Package usage marks errors of a question, as opposed to those of the answer: culvert ends with status 2 for them.
package usage

import (
	"errors"
	"fmt"
)

var errUsage = errors.New("usage")

// Error marks an error.
func Error(err error) error {
	if Is(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// Errorf makes an error that is marked.
func Errorf(format string, args ...any) error { return Error(fmt.Errorf(format, args...)) }

// Is tells whether an error is marked.
func Is(err error) bool { return errors.Is(err, errUsage) }
