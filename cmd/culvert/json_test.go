// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"culvert/internal/version"
)

// TestVersionJSON has -j in front of the verb and behind it.
func TestVersionJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"version", "-j"}, `{"version":"` + version.Short() + `","long":"culvert ` + version.Short() + ` (`},
		{[]string{"-j", "version"}, `{"version":"` + version.Short() + `","long":"culvert ` + version.Short() + ` (`},
		{[]string{"-p", "version"}, "{\n  \"version\": \"" + version.Short() + "\",\n"},
		{[]string{"version", "-j", "-p"}, "{\n  \"version\": \"" + version.Short() + "\",\n"},
	} {
		status, out, errs := culvert(t, tt.args...)
		if status != 0 || errs != "" || len(out) < len(tt.want) || out[:len(tt.want)] != tt.want {
			t.Errorf("culvert %q: status %d, stderr %q, stdout %q, want %q", tt.args, status, errs, out, tt.want)
		}
	}
}
