// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

const (
	// maxWorkers is the largest number of worker CPUs that scenario workers measures.
	maxWorkers = 8
	// workerFlows is the number of flows that take turns. It is large enough to spread the load evenly over workers. It is
	// prime, so that round-robin spreads the packets of each flow over all workers.
	workerFlows = 1021
	// workerFrameSize is the length in bytes of the shortest frames that have room for a stamp.
	workerFrameSize = 150
)

// workerCulvert is culvert with worker CPUs.
type workerCulvert struct {
	peer.Culvert
	// count is the number of workers that the row is about. Workers may have fewer CPUs.
	count int
}

// workerCandidates are the rows of scenario workers: one without workers, and for each number of workers one that spreads
// flows and one that spreads packets round-robin, as the published router does.
func workerCandidates() []peer.Candidate {
	row := func(name string, n int, roundRobin bool) peer.Candidate {
		return peer.Candidate{
			Name: fmt.Sprintf("%s@workers%d", name, n), SCION: true, Exclusive: true,
			Device: func(peer.DeviceOptions) peer.Device {
				t := peer.SCIONTraffic{Cold: true, Size: workerFrameSize, Payload: load.StampLen, Flows: workerFlows}
				return &workerCulvert{Culvert: peer.Culvert{Traffic: t, Workers: workerCPUs(n), RoundRobin: roundRobin}, count: n}
			},
		}
	}
	rows := []peer.Candidate{row("culvert-cold", 0, false)}
	for n := 1; n <= maxWorkers; n++ {
		rows = append(rows, row("culvert-cold", n, false), row("round-robin", n, true))
	}
	return rows
}

// workerCPUs are n CPUs for workers, or fewer if the process may not use as many. The generator's CPU is the last one.
func workerCPUs(n int) []int {
	var cpus []int
	for len(cpus) < n {
		cpu := load.PickCPU(func(cpu int) bool {
			return !slices.Contains(cpus, cpu) && (cpu != load.LastCPU() || len(cpus) == load.AllowedCPUs()-1)
		})
		if cpu < 0 {
			break
		}
		cpus = append(cpus, cpu)
	}
	return cpus
}

// enoughForWorkers returns the rows that need no more CPUs than the process may use. Leaving a row out is an error if it was
// named.
func enoughForWorkers(o Options, chosen []peer.Candidate) (available []peer.Candidate, err error) {
	largestMissing := 0
	for _, c := range chosen {
		d := c.Device(o.DeviceOptions()).(*workerCulvert)
		if len(d.Workers) == d.count {
			available = append(available, c)
			continue
		}
		if slices.Contains(o.Rows, c.Name) {
			return nil, fmt.Errorf("row %s needs %d CPUs, and this process may use %d (see taskset(1) and 'nproc --all')",
				c.Name, d.count, load.AllowedCPUs())
		}
		largestMissing = max(largestMissing, d.count)
	}
	if largestMissing > 0 {
		fmt.Fprintf(o.Progress, "leaving rows with %d to %d workers out: this process may use %d CPUs (see taskset(1) "+
			"and 'nproc --all')\n", load.AllowedCPUs()+1, largestMissing, load.AllowedCPUs())
	}
	return available, nil
}

func (d *workerCulvert) Describe(row *report.Row) {
	row.Workers = &d.count
	row.CPUs = slices.Compact(slices.Sorted(slices.Values(append([]int{load.LastCPU()}, d.Workers...))))
}

// workersNote is the note of a row, which says on which CPUs it runs.
func workersNote(d *workerCulvert) string {
	note := fmt.Sprintf("generator and rx on CPU %d", load.LastCPU())
	switch {
	case d.count == 0:
		return note + ", and all else"
	case d.Workers[d.count-1] == load.LastCPU():
		return note + ", which the last worker shares with them"
	default:
		return note
	}
}

// Workers is the scenario that measures throughput by the number of worker CPUs.
func Workers() Scenario {
	return Scenario{Name: "workers", Rounds: 7, Round: time.Second, Candidates: workerCandidates(), Run: runWorkers}
}

// runWorkers measures throughput with more and more workers, and the order of the packets.
func runWorkers(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	chosen, err := enoughForWorkers(o, chosen)
	if err != nil {
		return nil, err
	}
	frames, err := load.UDPFrames(peer.ColdFrames, workerFrameSize)
	if err != nil {
		return nil, err
	}
	rows := VethRows(chosen, o, VethOptions{
		Frames: frames, Sink: load.SinkOptions{MinLen: workerFrameSize}, CPU: load.LastCPU(), Flows: workerFlows, Size: workerFrameSize,
	})
	for _, r := range rows {
		r.Note = workersNote(r.Device.(*workerCulvert))
	}
	return runRates(ctx, rows, o, "culvert-cold@workers0")
}
