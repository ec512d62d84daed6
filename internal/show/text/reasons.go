// SPDX-License-Identifier: Apache-2.0

package text

import "culvert/internal/stats"

// AddReasons adds a row for each reason: verdict, name, packets followed by unit, bytes and, if sentences is set, the sentence
// that explains it.
func (t *Table) AddReasons(all []stats.Reason, unit string, sentences bool) {
	for _, r := range all {
		cells := []string{r.Outcome(), r.Name, Grouped(r.Packets) + unit, ShortBytes(r.Bytes)}
		if sentences {
			cells = append(cells, r.Sentence())
		}
		t.Add(cells...)
	}
}
