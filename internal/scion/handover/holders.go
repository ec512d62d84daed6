// SPDX-License-Identifier: Apache-2.0

// Package handover lets one data plane of the reference router follow another in a process: the sockets, BFD sessions and HTTP
// addresses that both have go on without interruption.
package handover

import "sync/atomic"

// Holders counts those that use a thing. The last one frees it.
type Holders struct{ n atomic.Int32 }

// Hold adds a holder.
func (h *Holders) Hold() { h.n.Add(1) }

// Drop takes a holder away and tells whether it was the last one.
func (h *Holders) Drop() (last bool) { return h.n.Add(-1) == 0 }
