// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"testing"

	"culvert/internal/stages"
)

// TestAboutConfigNamesStages wants the text of culvert.toml(5) to describe the table of each stage.
func TestAboutConfigNamesStages(t *testing.T) {
	for _, s := range stages.All() {
		if s.Name() == "example" {
			continue // of tests alone
		}
		if !regexp.MustCompile(`(?m)^  \[` + regexp.QuoteMeta(s.Name()) + `\]( |$)`).MatchString(aboutConfig) {
			t.Errorf("aboutConfig in config.go, the text of culvert.toml(5), does not describe the table [%s] of stage %s", s.Name(), s.Name())
		}
	}
}
