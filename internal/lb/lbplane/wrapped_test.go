// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

// TestWrapped wants packets with headers that the load balancer does not read to be left to the kernel, whatever is inside.
func TestWrapped(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	for _, c := range []struct{ from, to string }{{"203.0.113.7:2000", "192.0.2.1:80"}, {"[2001:db8:7::7]:2000", "[2001:db8::1]:80"}} {
		b.vip(0, c.to, protoTCP, []Backend{backend})
		frame := b.packet(c.from, c.to, &layers.TCP{SYN: true}, nil)
		b.expectSent(frame, "fwd lb-new", backend)
		for name, wrap := range testbed.OtherFrames() {
			testbed.CheckPassed(t, b.inst, "lb0", name+", to "+c.to, wrap(frame))
		}
	}
}
