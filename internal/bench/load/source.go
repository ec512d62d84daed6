// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnknown marks the name of something that does not exist.
var ErrUnknown = errors.New("unknown")

// Source is something that sends packets: a Generator or a Tcpreplay.
type Source interface {
	// Pace sets how many packets a second the next runs send at most, 0 for as many as possible.
	Pace(packets float64)
	// Run sends that many packets. It returns what was sent up to then when ctx ends or something fails.
	Run(ctx context.Context, packets uint64) (Sent, error)
	Close() error
}

// The kinds of Source.
const (
	KernelSource    = "kernel"
	TcpreplaySource = "tcpreplay"
)

// NewSource makes a source of a kind: kernel or tcpreplay.
func NewSource(kind string, o GeneratorOptions) (Source, error) {
	switch kind {
	case KernelSource:
		return NewGenerator(o)
	case TcpreplaySource:
		return NewTcpreplay(o)
	default:
		return nil, fmt.Errorf("%w generator %q: there are %s and %s", ErrUnknown, kind, KernelSource, TcpreplaySource)
	}
}
