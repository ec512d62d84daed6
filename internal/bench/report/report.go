// SPDX-License-Identifier: Apache-2.0

// Package report holds the outcome of a benchmark: its JSON, its Markdown table and its plots, and what changed
// between two outcomes. It measures nothing.
package report

import (
	"io"

	"culvert/internal/show"
)

// Report is the outcome of a scenario.
type Report struct {
	Scenario string `json:"scenario"`
	Rows     []Row  `json:"rows"`
	// Ratios maps "A/B" to the median, over rounds, of A's rate by B's in the same round. Costs have none.
	Ratios map[string]float64 `json:"ratios,omitempty"`
	// RatioSpreads has the same ratios with the smallest and the largest of all rounds.
	RatioSpreads map[string]Spread `json:"ratio_spreads,omitempty"`
	// SoftRatios maps "A/B" to the same of what a CPU takes that does nothing but receive (see Filter.SoftMpps).
	SoftRatios map[string]Spread `json:"soft_ratios,omitempty"`
	Machine    Machine           `json:"machine"`
}

// Row is what was measured of one row, over all rounds. What a scenario does not measure is absent.
type Row struct {
	// Name is stable: reports are compared by it. A variant of a row has a suffix, as in "culvert-cold@512".
	Name string `json:"name"`
	// FrameSize is the length of the frames in bytes, without the frame check sequence; 0 for a mix of lengths.
	FrameSize int `json:"frame_size,omitempty"`
	// CPUs are those that generator, device and sink ran on.
	CPUs []int `json:"cpus,omitempty"`
	// Workers is how many worker CPUs the device spread its packets over.
	Workers *int `json:"workers,omitempty"`
	// Mpps is the rate at which packets arrived, in millions a second.
	Mpps *Spread `json:"mpps,omitempty"`
	// Offered is the rate at which packets were sent, in the same unit.
	Offered *Spread `json:"offered_mpps,omitempty"`
	// NsPerPacket is in nanoseconds: the inverse of the rate, or the cost net of an empty program.
	NsPerPacket *Spread `json:"ns_per_packet,omitempty"`
	// Best is the lowest cost seen, net of the lowest of an empty program, in nanoseconds.
	Best *float64 `json:"best_ns_per_packet,omitempty"`
	// Empty is what an empty program took in the same rounds, in nanoseconds. NsPerPacket is net of it.
	Empty *Spread `json:"empty_ns_per_packet,omitempty"`
	// Instructions is how many instructions a packet takes, net of an empty program where a cost is counted.
	Instructions *float64 `json:"instructions_per_packet,omitempty"`
	// Frames is how many different frames took turns.
	Frames int `json:"frames,omitempty"`
	// Use is how busy each CPU was, from 0 to 1.
	Use map[int]Spread `json:"cpu_use,omitempty"`
	// Order is what became of the packets' order.
	Order *Order `json:"order,omitempty"`
	// Routes is what a router had to route by.
	Routes *Routes `json:"routes,omitempty"`
	// Filter is what a packet filter had to do, and what it took.
	Filter *Filter `json:"filter,omitempty"`
	// Floods has one entry for each rate of a flood, in ascending order.
	Floods []Flood `json:"floods,omitempty"`
	// Connections is what clients got through a balancer of connections.
	Connections *Connections `json:"connections,omitempty"`
	// NDR is the highest rate without loss, in millions of packets a second: the no drop rate.
	NDR *Spread `json:"ndr_mpps,omitempty"`
	// Latency has one entry for each offered rate, in ascending order.
	Latency []Latency `json:"latency,omitempty"`
	// Samples has the single rounds of some of the figures above, by their JSON names, in the order in which the
	// rounds ran: the n-th values of two rows were measured right after each other. Compare needs them.
	Samples  map[string][]float64 `json:"samples,omitempty"`
	Sent     uint64               `json:"sent,omitempty"`
	Received uint64               `json:"received,omitempty"`
	// Lost counts the packets that did not arrive, by the place that counted them.
	Lost map[string]uint64 `json:"lost,omitempty"`
	// Valid is false if packets were lost that nothing counted, or if the row does not show what it is meant to.
	// Note says so, or what is particular about the row.
	Valid bool   `json:"valid"`
	Note  string `json:"note,omitempty"`
}

// Order counts what a sink found in the sequence numbers of each flow.
type Order struct {
	// Packets counts all that arrived, duplicates too.
	Packets uint64 `json:"packets"`
	// Missing is how many of those sent did not arrive; when it is not known what was sent, how many numbers are
	// missing among those that arrived.
	Missing    uint64 `json:"missing"`
	Duplicates uint64 `json:"duplicates"`
	// Reordered packets carry a smaller number than one that came before them in their flow (RFC 4737, 3.3).
	Reordered uint64 `json:"reordered"`
	// Late are those of the reordered packets that came too late to know whether they are duplicates.
	Late uint64 `json:"late,omitempty"`
}

// Routes is the table of a router under test, and what it took.
type Routes struct {
	// Routes is how many there were of the packets' family, Destinations how many addresses the packets had.
	Routes       int `json:"table"`
	Destinations int `json:"destinations"`
	// Updates is how many routes were changed while packets were sent, in all rounds.
	Updates uint64 `json:"updates,omitempty"`
	// Install is how many seconds the kernel took to take all routes of the bed, of both families.
	Install float64 `json:"install_seconds"`
	// Sync is how many seconds a copy of the kernel's routes took until it was current, from the start.
	Sync float64 `json:"sync_seconds,omitempty"`
	// MapBytes is the memory of the copy in the kernel, ProcessBytes that of the process beside it.
	MapBytes     uint64 `json:"map_bytes,omitempty"`
	ProcessBytes uint64 `json:"process_bytes,omitempty"`
}

// Latency is how long packets took at one offered rate, in nanoseconds from the generator to the sink.
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
	// Curve has the latency at ascending shares of all packets, for a plot of the distribution.
	Curve []Point `json:"curve,omitempty"`
}

// Point says that a share of all packets, 0 to 1, took at most so many nanoseconds.
type Point struct {
	Share float64 `json:"share"`
	Ns    float64 `json:"ns"`
}

// Invalid names the rows whose figures are not to be trusted, in the order of the report.
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
