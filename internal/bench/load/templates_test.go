// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"slices"
	"testing"
)

// A table that is shuffled has the same frames in another order, the same in each run. The caller's frames stay in theirs.
func TestShuffle(t *testing.T) {
	const n = 100
	given := taggedFrames(n, 60)
	var orders [][][]byte
	for range 2 {
		tab, err := newTable(given, 0)
		if err != nil {
			t.Fatal(err)
		}
		tab.shuffle()
		orders = append(orders, tab.frames)
	}
	if !slices.EqualFunc(orders[0], orders[1], bytes.Equal) {
		t.Error("two tables have different orders")
	}
	if !slices.EqualFunc(given, taggedFrames(n, 60), bytes.Equal) {
		t.Error("the caller's frames have another order")
	}
	if slices.EqualFunc(orders[0], given, bytes.Equal) {
		t.Error("the order is as before")
	}
	sorted := slices.SortedFunc(slices.Values(orders[0]), bytes.Compare)
	if !slices.EqualFunc(sorted, slices.SortedFunc(slices.Values(given), bytes.Compare), bytes.Equal) {
		t.Error("other frames than before")
	}
}
