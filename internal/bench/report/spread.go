// SPDX-License-Identifier: Apache-2.0

package report

import "slices"

// Spread sums up a figure that was measured in several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// NewSpread sums up values. It is zero without values.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (v[len(v)/2-1] + mid) / 2
	}
	return Spread{Median: mid, Min: v[0], Max: v[len(v)-1]}
}

// PairedRatios divides each value of a by the value of b at the same index, which is that of the same round. It leaves out indexes
// where b is not above zero.
func PairedRatios(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

func (s Spread) median() float64 { return s.Median }
func (s Spread) least() float64  { return s.Min }
func (s Spread) most() float64   { return s.Max }
