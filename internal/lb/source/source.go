// SPDX-License-Identifier: Apache-2.0

// Package source knows where backends of a VIP come from besides the configuration: the contract of a source, the entries that lists of
// backends consist of, and how much of an answer is believed and when. Packages below it have the kinds of sources, and sourcetest has
// the test that each kind passes.
package source

import (
	"context"

	"culvert/internal/lb"
)

// Source is where backends of a VIP come from.
type Source interface {
	// Watch tells all backends that the source names, at once and whenever they may have changed, until ctx ends. It tells an error,
	// of one line, when the source cannot be asked or when what it says is no list of backends, and goes on: the source may recover,
	// and then Watch tells the backends again, also if they are the same. It never tells a part of them. A source that has no backends
	// tells an empty list. Watch calls tell from one goroutine at a time and not after it has returned, and returns soon after the end
	// of ctx.
	Watch(ctx context.Context, tell Tell)
}

// Tell takes an answer of a source. The backends have different addresses, and the lists are the caller's to keep.
type Tell func([]lb.Offer, error)
