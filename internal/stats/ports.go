// SPDX-License-Identifier: Apache-2.0

package stats

const (
	// LossWorkerQueue names the loss of packets that found the queue of their worker full.
	LossWorkerQueue = "worker-queue"
	// ReasonSCIONInterface is what datagrams of SCION links are counted under that came by another interface than their link's.
	ReasonSCIONInterface = "scion-interface"
)

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

// Reason counts the packets that left an interface's pipeline for one reason (bpf/core/reason.h).
type Reason struct {
	// Name is in lower case with dashes: "scion-mac".
	Name string `json:"reason"`
	// Verdict is pass, punt, drop or fwd.
	Verdict string `json:"verdict"`
	// Limited is set for packets that were to go to the slow path and were dropped by its limit.
	Limited bool `json:"limited,omitempty"`
	// Text is the sentence that explains the reason (bpf/*/reasons.h).
	Text    string `json:"text,omitempty"`
	Packets uint64 `json:"packets"`
	// Bytes counts whole frames as they were received.
	Bytes uint64 `json:"bytes"`
}

// VerdictLimited stands in place of "punt" where packets did not get to the slow path because their
// reason had used up its rate.
const VerdictLimited = "limited"

// Outcome is the verdict, or VerdictLimited.
func (r Reason) Outcome() string {
	if r.Limited {
		return VerdictLimited
	}
	return r.Verdict
}

// Sentence explains the reason, and says if its limit came first.
func (r Reason) Sentence() string {
	if r.Limited && r.Text != "" {
		return "kept from the slow path by its limit: " + r.Text
	}
	return r.Text
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

// Dropped counts the packets dropped for a reason, by interface. Each interface is there, also with 0. With an error there may
// be fewer, and the map is never nil.
func Dropped(source PortSource, reason string) (map[string]uint64, error) {
	seen := map[string]uint64{}
	ports, err := source.Ports()
	for _, p := range ports {
		packets := seen[p.Interface]
		for _, r := range p.Reasons {
			if r.Verdict == "drop" && r.Name == reason {
				packets += r.Packets
			}
		}
		seen[p.Interface] = packets
	}
	return seen, err
}
