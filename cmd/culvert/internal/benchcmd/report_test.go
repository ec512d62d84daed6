// SPDX-License-Identifier: Apache-2.0

package benchcmd

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"culvert/internal/bench/report"
	"culvert/internal/show/usage"
)

// TestInvalidRowsFail wants the command to print and write a report with an invalid row, and then to fail.
func TestInvalidRowsFail(t *testing.T) {
	count := 5.0
	r := &report.Report{Scenario: "insn", Rows: []report.Row{
		{Name: "good", Instructions: &count, Valid: true}, {Name: "leaky", Instructions: &count}, {Name: "odd", Instructions: &count},
	}}
	var out, errs strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	prefix := filepath.Join(t.TempDir(), "p")
	err := showReport(cmd, r, false, prefix)
	if err == nil || usage.Is(err) || !strings.Contains(err.Error(), "not valid: leaky, odd:") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "| leaky (invalid) |") || !strings.Contains(errs.String(), prefix+"-instructions.svg") {
		t.Errorf("wrote %q and %q", out.String(), errs.String())
	}
	if _, err := report.Read(prefix + ".json"); err != nil {
		t.Error(err)
	}
	r.Rows = r.Rows[:1]
	if err := showReport(cmd, r, true, ""); err != nil {
		t.Error(err)
	}
}
