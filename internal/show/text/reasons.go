// SPDX-License-Identifier: Apache-2.0

package text

import "culvert/internal/stats"

// AddReasons adds a row for each reason: verdict, name, packets with a unit behind the number, bytes, and the sentence that
// explains it if that is asked for.
func (t *Table) AddReasons(all []stats.Reason, unit string, sentences bool) {
	for _, r := range all {
		cells := []string{r.Outcome(), r.Name, Grouped(r.Packets) + unit, ShortBytes(r.Bytes)}
		if sentences {
			cells = append(cells, r.Sentence())
		}
		t.Add(cells...)
	}
}
