// SPDX-License-Identifier: Apache-2.0

package nexthop

import "testing"

// A veth takes redirected frames only while its peer uses NAPI. Otherwise the address does not resolve,
// and the slow path sends the packets.
func TestDeviceWithoutXmit(t *testing.T) {
	w := newWire(t, Options{})
	if w.resolver.xdp == nil {
		t.Fatal("this kernel does not say what a driver can do with XDP: Linux 6.3 or later is needed")
	}
	w.listen("cv0p", 0)
	w.track(there, here)
	w.expect(NextHop{})
	w.listen("cv0p", 1)
	w.expect(w.via("cv0", "cv0p"))
	w.listen("cv0p", 0)
	w.expect(NextHop{})
}
