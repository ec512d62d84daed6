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
	// mostWorkers is how many worker CPUs scenario workers goes up to, if there are as many.
	mostWorkers = 8
	// workerFlows is how many flows take turns: so many that each worker gets its share of them. It is prime, so that
	// by turns the packets of each flow go to all workers.
	workerFlows = 1021
	// workerFrameSize is the length of the frames in bytes: the shortest that hold a stamp behind the headers.
	workerFrameSize = 150
)

// spread is culvert with worker CPUs.
type workerCulvert struct {
	peer.Culvert
	count int
}

// workerCandidates are the rows of scenario workers: without workers, then with more and more of them, each number
// with the flows kept together and with packets by turns as in the published router.
func workerCandidates() []peer.Candidate {
	row := func(name string, n int, turns bool) peer.Candidate {
		return peer.Candidate{
			Name: fmt.Sprintf("%s@workers%d", name, n), SCION: true, Exclusive: true,
			Device: func(peer.DeviceOptions) peer.Device {
				t := peer.SCIONTraffic{Cold: true, Size: workerFrameSize, Payload: load.StampLen, Flows: workerFlows}
				return &workerCulvert{Culvert: peer.Culvert{Traffic: t, Workers: workerCPUs(n), Turns: turns}, count: n}
			},
		}
	}
	rows := []peer.Candidate{row("culvert-cold", 0, false)}
	for n := 1; n <= mostWorkers; n++ {
		rows = append(rows, row("culvert-cold", n, false), row("round-robin", n, true))
	}
	return rows
}

// workerCPUs are n CPUs to work on: those without the generator first.
func workerCPUs(n int) []int {
	var list []int
	for len(list) < n {
		cpu := load.PickCPU(func(cpu int) bool {
			return !slices.Contains(list, cpu) && (cpu != load.LastCPU() || len(list) == load.AllowedCPUs()-1)
		})
		if cpu < 0 {
			break
		}
		list = append(list, cpu)
	}
	return list
}

// enoughForWorkers leaves out the rows that need more CPUs than the process may use. It is an error if they were
// asked for by name.
func enoughForWorkers(o Options, chosen []peer.Candidate) (available []peer.Candidate, err error) {
	most := 0
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
		most = max(most, d.count)
	}
	if most > 0 {
		fmt.Fprintf(o.Progress, "leaving rows with %d to %d workers out: this process may use %d CPUs (see taskset(1) "+
			"and 'nproc --all')\n", load.AllowedCPUs()+1, most, load.AllowedCPUs())
	}
	return available, nil
}

func (d *workerCulvert) Describe(row *report.Row) {
	row.Workers = &d.count
	row.CPUs = slices.Compact(slices.Sorted(slices.Values(append([]int{load.LastCPU()}, d.Workers...))))
}

// workersNote says where a row runs.
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

// Workers is about what more and more worker CPUs forward.
func Workers() Scenario {
	return Scenario{Name: "workers", Rounds: 7, Round: time.Second, Candidates: workerCandidates(), Run: runWorkers}
}

// runWorkers measures what more and more workers forward, and what becomes of the packets' order.
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
