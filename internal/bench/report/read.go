// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// maxFile is the size in bytes of the largest file that is read as a report. One round of one row takes some 20 bytes.
const maxFile = 64 << 20

// Read reads a report that WriteJSON has written. It ignores unknown fields, because a newer culvert may have more.
func Read(file string) (*Report, error) {
	r, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("read report %s: %w", file, err)
	}
	return r, nil
}

func read(file string) (*Report, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if info.IsDir() {
		return nil, errors.New("it is a directory: name the JSON file in it")
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("it has %d bytes, a report at most %d", info.Size(), maxFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("not JSON of 'culvert bench run SCENARIO -j': %w", err)
	}
	return r, r.check()
}

// check returns an error for values that no measurement can have, so that tables, plots and comparisons need not handle them.
func (r *Report) check() error {
	if r.Scenario == "" || len(r.Rows) == 0 {
		return errors.New("it names no scenario or has no rows: make one with 'culvert bench run SCENARIO -j'")
	}
	seen := map[string]bool{}
	for i, row := range r.Rows {
		switch {
		case row.Name == "":
			return fmt.Errorf("row %d has no name", i+1)
		case seen[row.Name]:
			return fmt.Errorf("row %s is in it twice", row.Name)
		case row.Workers != nil && (*row.Workers < 0 || *row.Workers > 1<<16):
			return fmt.Errorf("row %s: %d workers cannot be", row.Name, *row.Workers)
		case row.FrameSize < 0:
			return fmt.Errorf("row %s: a frame of %d bytes cannot be", row.Name, row.FrameSize)
		}
		seen[row.Name] = true
		for name, s := range map[string]*Spread{
			"mpps": row.Mpps, "offered_mpps": row.Offered, "ns_per_packet": row.NsPerPacket, "ndr_mpps": row.NDR,
		} {
			if s != nil && (s.Min > s.Median || s.Median > s.Max) {
				return fmt.Errorf("row %s: the median of %s, %g, is not between min %g and max %g", row.Name, name, s.Median,
					s.Min, s.Max)
			}
		}
		for _, l := range row.Latency {
			if l.Load < 0 || l.P50 < 0 || l.P90 < l.P50 || l.P99 < l.P90 || l.P999 < l.P99 || l.Max < l.P999 {
				return fmt.Errorf("row %s: the latencies at load %g do not ascend", row.Name, l.Load)
			}
		}
	}
	return nil
}
