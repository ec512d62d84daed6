// SPDX-License-Identifier: Apache-2.0

package stats

// LossWorkerQueue names the loss of packets that found the queue of their worker full.
const LossWorkerQueue = "worker-queue"

// Port holds the counters of one network interface. Every packet that it has received is in one of
// Reasons, or did not get as far as to have one (LossWorkerQueue).
type Port struct {
	Interface string `json:"interface"`
	// Attached is false for an interface that was served before and is not now.
	Attached bool     `json:"attached"`
	Reasons  []Reason `json:"reasons"`
	// Losses counts packets that were forwarded by their reason and lost after that, by the
	// tracepoint that told of it. Those under LossWorkerQueue were lost before, and have no reason.
	Losses map[string]uint64 `json:"losses"`
}

// Reason counts the packets that left an interface's pipeline for one reason (bpf/reason.h).
type Reason struct {
	// Name is in lower case with dashes: "scion-mac".
	Name string `json:"reason"`
	// Verdict is pass, punt, drop or fwd.
	Verdict string `json:"verdict"`
	// Limited is set for packets that were to go to the slow path and were dropped by its limit.
	Limited bool   `json:"limited,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes counts whole frames as they were received.
	Bytes uint64 `json:"bytes"`
}

// PortSource gives the counters of all interfaces. Values only grow.
type PortSource interface {
	Ports() ([]Port, error)
}

// Total adds up what the interface has received: all reasons, and packets lost before they had one,
// whose bytes nobody has counted.
func (p Port) Total() (packets, bytes uint64) {
	for _, r := range p.Reasons {
		packets += r.Packets
		bytes += r.Bytes
	}
	return packets + p.Losses[LossWorkerQueue], bytes
}
