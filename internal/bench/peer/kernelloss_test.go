// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"testing"
)

func TestParseSNMP(t *testing.T) {
	got := ParseSNMP("Ip: Forwarding InDiscards\nIp: 1 7\nIcmp: InMsgs\nIcmp: 3\nIp6InNoRoutes   \t12\nTcp: A B\nOdd: 1\n")
	for name, want := range map[string]uint64{"Ip:InDiscards": 7, "Icmp:InMsgs": 3, "Ip6InNoRoutes": 12, "Ip:OutDiscards": 0} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}
