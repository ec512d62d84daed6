// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
)

// ErrUnknown marks a name that does not exist.
var ErrUnknown = errors.New("unknown")

// Source sends packets: it is a Generator or a Tcpreplay.
type Source interface {
	// Pace bounds the rate of the next runs, in packets a second; 0 stands for as many as possible.
	Pace(packets float64)
	// Run sends packets. When ctx ends or something fails, it returns what was sent until then, with the error.
	Run(ctx context.Context, packets uint64) (Sent, error)
	Close() error
}

// The kinds of Source.
const (
	KernelSource    = "kernel"
	TcpreplaySource = "tcpreplay"
)

// NewSource makes a source of a kind, KernelSource or TcpreplaySource.
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
