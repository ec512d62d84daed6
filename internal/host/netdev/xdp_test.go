// SPDX-License-Identifier: Apache-2.0

package netdev

import "testing"

// TestEgressOfKernelsThatDoNotSay is about kernels without XDPFamily: no device takes redirected frames of several buffers there.
func TestEgressOfKernelsThatDoNotSay(t *testing.T) {
	c, err := Open("culvert-none")
	if err == nil || c != nil {
		t.Fatalf("a netlink family that does not exist: client %v, error %v", c, err)
	}
	for _, generic := range []bool{false, true} {
		if got, want := c.Egress(1, generic), (Egress{LinearOnly: true}); got != want {
			t.Errorf("generic %v: %+v, want %+v", generic, got, want)
		}
	}
}
