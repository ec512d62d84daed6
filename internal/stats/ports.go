// SPDX-License-Identifier: Apache-2.0

package stats

const (
	// LossWorkerQueue is the name of the loss of packets whose worker's queue was full.
	LossWorkerQueue = "worker-queue"
	// ReasonSCIONInterface is the reason of datagrams of a SCION link that arrived on another interface than the link's.
	ReasonSCIONInterface = "scion-interface"
	// ReasonFilterLimit is the reason of packets that were over the rate of a filter's rule.
	ReasonFilterLimit = "filter-limit"
)

// Port holds the counters of one network interface. Every packet that it has received is counted
// under one of Reasons, or was lost before it had a reason (LossWorkerQueue).
type Port struct {
	Interface string `json:"interface"`
	// Attached is false for an interface that carried the data plane before and does not now.
	Attached bool     `json:"attached"`
	Reasons  []Reason `json:"reasons"`
	// Losses counts packets that were forwarded and then lost, by the tracepoint that reported the
	// loss. Packets under LossWorkerQueue were lost earlier and have no reason.
	Losses map[string]uint64 `json:"losses"`
	// CPUs has what each CPU has given a verdict on, by CPU. CPUs without packets are left out. With workers the CPU is the worker's,
	// for packets that it got from its queue.
	CPUs []CPUPackets `json:"cpus,omitempty"`
}

// CPUPackets counts the packets on which one CPU has given a verdict.
type CPUPackets struct {
	CPU     int    `json:"cpu"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Reason counts the packets that left an interface's pipeline for one reason (bpf/core/reason.h).
type Reason struct {
	// Name is in lower case with dashes: "scion-mac".
	Name string `json:"reason"`
	// Stage is the stage whose reason it is, or "core" for those of no stage.
	Stage string `json:"-"`
	// Verdict is pass, punt, drop or fwd.
	Verdict string `json:"verdict"`
	// Limited is set for packets that were meant for the slow path and were dropped by its limit.
	Limited bool `json:"limited,omitempty"`
	// Text is the sentence that explains the reason (bpf/*/reasons.h).
	Text    string `json:"text,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes counts whole frames as they were received.
	Bytes uint64 `json:"bytes"`
}

// VerdictLimited replaces "punt" for packets that were dropped because their reason had used up its
// rate to the slow path.
const VerdictLimited = "limited"

// Outcome is the verdict, or VerdictLimited.
func (r Reason) Outcome() string {
	if r.Limited {
		return VerdictLimited
	}
	return r.Verdict
}

// Sentence explains the reason. For packets dropped by the reason's limit it says so first.
func (r Reason) Sentence() string {
	if r.Limited && r.Text != "" {
		return "kept from the slow path by its limit: " + r.Text
	}
	return r.Text
}

// PortSource has the counters of all interfaces. Values only grow.
type PortSource interface {
	Ports() ([]Port, error)
}

// Total adds up the packets that the interface has received: those of all reasons, and those lost
// before they had one. The bytes of the latter are not counted.
func (p Port) Total() (packets, bytes uint64) {
	for _, r := range p.Reasons {
		packets += r.Packets
		bytes += r.Bytes
	}
	return packets + p.Losses[LossWorkerQueue], bytes
}

// Dropped counts the packets dropped for a reason, by interface. The map has every interface, also those with 0. If it returns
// an error, the map may lack interfaces, but it is never nil.
func Dropped(source PortSource, reason string) (map[string]uint64, error) {
	dropped := map[string]uint64{}
	ports, err := source.Ports()
	for _, p := range ports {
		packets := dropped[p.Interface]
		for _, r := range p.Reasons {
			if r.Verdict == "drop" && r.Name == reason {
				packets += r.Packets
			}
		}
		dropped[p.Interface] = packets
	}
	return dropped, err
}
