// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"culvert/cmd/culvert/internal/cli"
)

// TestTimes wants every flag with a time to take seconds as a number and times with a unit.
func TestTimes(t *testing.T) {
	found := 0
	commands(newRootCmd(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				t.Errorf("%s: --%s takes no seconds: add it with cli.TimeFlag", cmd.CommandPath(), f.Name)
			}
			v, ok := f.Value.(*cli.TimeValue)
			if !ok {
				return
			}
			found++
			for text, want := range map[string]time.Duration{"0.5": 500 * time.Millisecond, "100ms": 100 * time.Millisecond, "2": 2 * time.Second, "1m": time.Minute,
				"-1": -time.Second, "0": 0, "1e-3": time.Millisecond} {
				if err := v.Set(text); err != nil || time.Duration(*v) != want {
					t.Errorf("%s --%s %s: %v, %v, want %v", cmd.CommandPath(), f.Name, text, time.Duration(*v), err, want)
				}
			}
			for _, text := range []string{"", "soon", "1 s", "NaN", "Inf", "1e10", "100xs"} {
				if err := v.Set(text); err == nil {
					t.Errorf("%s --%s %q is taken", cmd.CommandPath(), f.Name, text)
				}
			}
		})
	})
	if found < 9 {
		t.Errorf("%d flags with times, want watch's, filter watch's, two of blast and sink, of bench run, four of lb vip, two of lab up", found)
	}
}
