// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"

	"culvert/internal/show"
)

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	return show.JSON(w, r)
}

// WriteTable writes the report as text: a line for each finding, and below it the command that mends it.
func (r *Report) WriteTable(w io.Writer) error {
	where, check := 4, 5
	for _, f := range r.Findings {
		where = max(where, len(f.subject()))
		check = max(check, len(f.Check))
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  %-*s  %s\n", f.Status, where, f.subject(), check, f.Check, f.Finding); err != nil {
			return err
		}
		if f.Command == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%*s  -> %s\n", 4+2+where+2+check, "", f.Command); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%d ok, %d warn, %d FAIL\n", r.OK, r.Warn, r.Fail)
	return err
}

// subject returns the interface that the finding is about, or "host".
func (f Finding) subject() string {
	if f.Interface == "" {
		return "host"
	}
	return f.Interface
}
