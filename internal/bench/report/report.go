// SPDX-License-Identifier: Apache-2.0

// Package report has the reports of benchmarks: their JSON, Markdown tables and plots, and the comparison of two reports. It
// measures nothing.
package report

import (
	"io"

	"culvert/internal/show"
)

// Report is the report of a scenario.
type Report struct {
	Scenario string `json:"scenario"`
	Rows     []Row  `json:"rows"`
	// Ratios maps "A/B" to the median, over rounds, of the ratio of A's rate to B's in the same round. Costs have no ratios.
	Ratios map[string]float64 `json:"ratios,omitempty"`
	// RatioSpreads has the same ratios with the smallest and the largest of all rounds.
	RatioSpreads map[string]Spread `json:"ratio_spreads,omitempty"`
	// SoftRatios maps "A/B" to the ratio of A's Filter.SoftMpps to B's.
	SoftRatios map[string]Spread `json:"soft_ratios,omitempty"`
	Machine    Machine           `json:"machine"`
}

// Row has the measurements of one row, over all rounds. Figures that a scenario does not measure are absent.
type Row struct {
	// Name is stable: reports are compared by it. A variant of a row has a suffix, as in "culvert-cold@512".
	Name string `json:"name"`
	// FrameSize is the length of the frames in bytes, without the frame check sequence; 0 for a mix of lengths.
	FrameSize int `json:"frame_size,omitempty"`
	// CPUs are the CPUs of generator, device and sink.
	CPUs []int `json:"cpus,omitempty"`
	// Workers is the number of worker CPUs that the device spread its packets over.
	Workers *int `json:"workers,omitempty"`
	// Mpps is the rate at which packets arrived, in millions a second.
	Mpps *Spread `json:"mpps,omitempty"`
	// Offered is the rate at which packets were sent, in the same unit.
	Offered *Spread `json:"offered_mpps,omitempty"`
	// NsPerPacket is in nanoseconds: the inverse of the rate, or the cost net of an empty program.
	NsPerPacket *Spread `json:"ns_per_packet,omitempty"`
	// Best is the lowest cost of all rounds, net of the lowest of an empty program, in nanoseconds.
	Best *float64 `json:"best_ns_per_packet,omitempty"`
	// Empty is the time of an empty program in the same rounds, in nanoseconds. NsPerPacket is net of it.
	Empty *Spread `json:"empty_ns_per_packet,omitempty"`
	// Instructions is the number of instructions per packet. For a program by itself it is net of an empty program.
	Instructions *float64 `json:"instructions_per_packet,omitempty"`
	// Frames is the number of different frames that took turns.
	Frames int `json:"frames,omitempty"`
	// Use is how busy each CPU was, from 0 to 1.
	Use map[int]Spread `json:"cpu_use,omitempty"`
	// Order is the order in which packets arrived.
	Order *Order `json:"order,omitempty"`
	// Routes describes the table of a router.
	Routes *Routes `json:"routes,omitempty"`
	// Filter describes a packet filter and the time that it took.
	Filter *Filter `json:"filter,omitempty"`
	// Floods has one entry for each rate of a flood, in ascending order.
	Floods []Flood `json:"floods,omitempty"`
	// Connections has the measurements of connections through a balancer.
	Connections *Connections `json:"connections,omitempty"`
	// Fleet has the figures of a fleet of nodes.
	Fleet *Fleet `json:"fleet,omitempty"`
	// NDR is the highest rate without loss, in millions of packets a second: the no drop rate.
	NDR *Spread `json:"ndr_mpps,omitempty"`
	// Latency has one entry for each offered rate, in ascending order.
	Latency []Latency `json:"latency,omitempty"`
	// Samples has the single rounds of some of the figures above, by their JSON names, in the order of the rounds. The values at
	// the same index of two rows were measured directly after each other. Compare needs them.
	Samples  map[string][]float64 `json:"samples,omitempty"`
	Sent     uint64               `json:"sent,omitempty"`
	Received uint64               `json:"received,omitempty"`
	// Lost counts the packets that did not arrive, by the place that counted them.
	Lost map[string]uint64 `json:"lost,omitempty"`
	// Valid is false if packets were not accounted for, or if the row does not measure what it is about. Note says why, or what
	// else is particular about the row.
	Valid bool   `json:"valid"`
	Note  string `json:"note,omitempty"`
}

// Order counts packets by their sequence numbers, over all flows.
type Order struct {
	// Packets counts all packets that arrived, including duplicates.
	Packets uint64 `json:"packets"`
	// Missing counts packets that were sent and did not arrive. If the number sent is not known, it counts the gaps in the sequence
	// numbers that arrived.
	Missing    uint64 `json:"missing"`
	Duplicates uint64 `json:"duplicates"`
	// Reordered counts packets with a smaller number than one that arrived before them in their flow (RFC 4737, 3.3).
	Reordered uint64 `json:"reordered"`
	// Late counts reordered packets that arrived too late to know whether they are duplicates.
	Late uint64 `json:"late,omitempty"`
}

// Routes describes the table of a router under test, and the time and memory that it took.
type Routes struct {
	// Routes is the number of routes of the packets' family, Destinations the number of destination addresses.
	Routes       int `json:"table"`
	Destinations int `json:"destinations"`
	// Updates is the number of changes of routes during all rounds.
	Updates uint64 `json:"updates,omitempty"`
	// Install is the time in which the kernel installed the routes of both families, in seconds.
	Install float64 `json:"install_seconds"`
	// Sync is the time from the start until a mirror of the kernel's routes was current, in seconds.
	Sync float64 `json:"sync_seconds,omitempty"`
	// MapBytes is the memory of the mirror in the kernel, ProcessBytes that in the process.
	MapBytes     uint64 `json:"map_bytes,omitempty"`
	ProcessBytes uint64 `json:"process_bytes,omitempty"`
}

// Latency has the latencies at one offered rate, in nanoseconds from the generator to the sink.
type Latency struct {
	// Load is the offered rate as a share of the highest rate without loss, 0 to 1.
	Load float64 `json:"load"`
	// Offered is the rate at which packets were sent, in millions a second.
	Offered float64 `json:"offered_mpps"`
	Packets uint64  `json:"packets"`
	P50     float64 `json:"p50_ns"`
	P90     float64 `json:"p90_ns"`
	P99     float64 `json:"p99_ns"`
	P999    float64 `json:"p99_9_ns"`
	Max     float64 `json:"max_ns"`
	// Curve has the distribution: the latency at ascending shares of all packets.
	Curve []Point `json:"curve,omitempty"`
}

// Point is a point of a latency distribution: Share of all packets, 0 to 1, took at most Ns nanoseconds.
type Point struct {
	Share float64 `json:"share"`
	Ns    float64 `json:"ns"`
}

// Invalid lists the names of the invalid rows, in the order of the report.
func (r *Report) Invalid() []string {
	var names []string
	for _, row := range r.Rows {
		if !row.Valid {
			names = append(names, row.Name)
		}
	}
	return names
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	return show.JSON(w, r)
}
