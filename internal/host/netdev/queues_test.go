// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestQueueStatistics takes names of statistics from several drivers.
func TestQueueStatistics(t *testing.T) {
	for _, tt := range []struct {
		driver string
		stats  map[string]uint64
		want   map[int]uint64
	}{
		{"virtio_net", map[string]uint64{"rx_queue_0_packets": 1, "rx_queue_1_packets": 2, "rx_queue_0_bytes": 9, "tx_queue_0_packets": 9}, map[int]uint64{0: 1, 1: 2}},
		{"virtio_net, newer", map[string]uint64{"rx0_packets": 1, "rx12_packets": 2, "tx0_packets": 9, "rx0_drops": 9}, map[int]uint64{0: 1, 12: 2}},
		{"veth", map[string]uint64{"rx_queue_0_xdp_packets": 3, "rx_queue_0_xdp_bytes": 9, "peer_ifindex": 7}, map[int]uint64{0: 3}},
		{"i40e", map[string]uint64{"rx-0.packets": 4, "rx-1.packets": 5, "tx-0.packets": 9}, map[int]uint64{0: 4, 1: 5}},
		{"ena", map[string]uint64{"queue_0_rx_cnt": 6, "queue_0_tx_cnt": 9}, map[int]uint64{0: 6}},
		{"bnxt", map[string]uint64{"[0]: rx_ucast_packets": 7, "[1]: tx_ucast_packets": 9}, map[int]uint64{0: 7}},
		{"e1000e", map[string]uint64{"rx_packets": 7}, nil},
	} {
		if got := queuesIn(tt.stats); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.driver, got, tt.want)
		}
	}
}

// TestInterrupts reads files as the kernel has them.
func TestInterrupts(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("interrupts", `           CPU0       CPU1
 38:          0      46240 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:      36489          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
NMI:          1          0   Non-maskable interrupts
`)
	if got := interruptNames(filepath.Join(dir, "interrupts")); got[38] != "virtio2-input.0" || got[39] != "virtio2-output.0" || len(got) != 2 {
		t.Errorf("names %v", got)
	}
	for name, want := range map[string]bool{
		"virtio2-input.0": true, "virtio2-output.0": false, "virtio2-config": false, "eth0-TxRx-3": true, "i40e-eth0-TxRx-0": true,
		"mlx5_comp3@pci:0000:00:03.0": true, "mlx5_async0@pci:0000:00:03.0": false, "eth0-rxtx-1": true, "eth0-tx-0": false, "eth0-rx-0": true,
	} {
		if receives.MatchString(name) != want {
			t.Errorf("%s receives: %v", name, !want)
		}
	}
	write("irq/38/smp_affinity_list", "0-1\n")
	if got := interruptCPUs(filepath.Join(dir, "irq/38")); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("may be served by %v", got)
	}
	write("irq/38/effective_affinity_list", "1\n")
	if got := interruptCPUs(filepath.Join(dir, "irq/38")); !slices.Equal(got, []int{1}) {
		t.Errorf("served by %v", got)
	}
	if got := interruptCPUs(filepath.Join(dir, "irq/39")); got != nil {
		t.Errorf("an interrupt that has gone is served by %v", got)
	}
}

// TestUsedInterrupts wants interrupts of queues alone that are in use.
func TestUsedInterrupts(t *testing.T) {
	numbers := func(all []Interrupt) (irqs []int) {
		for _, i := range all {
			irqs = append(irqs, i.IRQ)
		}
		return irqs
	}
	virtio := []Interrupt{{IRQ: 30, Name: "virtio2-input.0"}, {IRQ: 32, Name: "virtio2-input.1"}, {IRQ: 34, Name: "virtio2-input.2"}, {IRQ: 50, Name: "virtio2-input.10"}}
	for receive, want := range map[int][]int{1: {30}, 2: {30, 32}, 4: {30, 32, 34}, 16: {30, 32, 34, 50}} {
		if got := numbers(used(virtio, receive)); !slices.Equal(got, want) {
			t.Errorf("%d queues: interrupts %v, want %v", receive, got, want)
		}
	}
	others := []Interrupt{{IRQ: 30, Name: "eth0-TxRx-8"}, {IRQ: 31, Name: "gve-ntfy-block.9"}, {IRQ: 32, Name: "eth0"}}
	if got := numbers(used(others, 2)); !slices.Equal(got, []int{30, 31, 32}) {
		t.Errorf("other drivers: %v", got)
	}
}

func TestQueuesText(t *testing.T) {
	q := &Queues{Receive: 2, Most: 8, RSS: shares([]uint32{0, 0, 0, 1}, 2), Interrupts: []Interrupt{{38, "virtio2-input.0", []int{1}}}}
	q.Packets = byQueue(map[int]uint64{0: 30, 1: 10, 2: 9}, 2)
	if got, want := q.String(), "2 receive of 8, hashes spread 75 25 %, interrupts 38 on CPU 1, packets 75 25 %"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := shares(nil, 2); got != nil {
		t.Errorf("no table: %v", got)
	}
}
