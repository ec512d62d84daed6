// SPDX-License-Identifier: Apache-2.0

package load

import "testing"

func TestNetRX(t *testing.T) {
	const text = "                    CPU0       CPU2\n      NET_TX:          1          2\n      NET_RX:         30         40\n"
	for cpu, want := range map[int]uint64{0: 30, 2: 40} {
		if n, err := netRX(text, cpu); err != nil || n != want {
			t.Errorf("CPU %d: %d, error %v, want %d", cpu, n, err, want)
		}
	}
	for _, bad := range []string{"", "CPU0\nNET_TX: 1\n", "CPU1\nNET_RX: 1\n"} {
		if _, err := netRX(bad, 0); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
