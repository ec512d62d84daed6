// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestSpread(t *testing.T) {
	tests := []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3}},
		{[]float64{9, 1, 2}, Spread{2, 1, 9}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9}},
	}
	for _, tc := range tests {
		if got := NewSpread(tc.values); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.values, got, tc.want)
		}
	}
}
