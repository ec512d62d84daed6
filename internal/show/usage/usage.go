// SPDX-License-Identifier: Apache-2.0

// Package usage marks errors of wrong usage, for which culvert exits with status 2 instead of 1.
package usage

import (
	"errors"
	"fmt"
)

var errUsage = errors.New("usage")

// Error marks an error as wrong usage and puts "usage: " in front, unless it is marked already.
func Error(err error) error {
	if Is(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}

// Errorf returns a marked error.
func Errorf(format string, args ...any) error { return Error(fmt.Errorf(format, args...)) }

// Is tells whether an error, or one that it wraps, is marked.
func Is(err error) bool { return errors.Is(err, errUsage) }
