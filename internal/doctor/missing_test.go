// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"
)

// TestUnread wants a finding with status Fail if the running data planes cannot be read.
func TestUnread(t *testing.T) {
	if got := checkUnread(nil); got != nil {
		t.Errorf("without an error: %v", got)
	}
	got := checkUnread(errors.New("opening the pins: no"))
	if len(got) != 1 || got[0].Status != Fail || !strings.Contains(got[0].Finding, "opening the pins: no") {
		t.Errorf("with one: %+v", got)
	}
}

// TestMissingNames has interfaces that were renamed, moved to another network namespace, and deleted.
func TestMissingNames(t *testing.T) {
	for want, m := range map[string]Missing{
		"it was renamed to old0, and another interface made; no stage":                             {Exists: true, Renamed: "old0"},
		"it was moved to another network namespace, and another interface made; no stage":          {Exists: true, Moved: true},
		"it was moved to another network namespace, so here it does not exist; the process":        {Moved: true, Served: true},
		"it was deleted and made again; no stage":                                                  {Exists: true},
		"it was renamed to old0, and another interface made, which cannot be attached to; the log": {Exists: true, Served: true, Renamed: "old0"},
	} {
		if got := checkMissing([]Missing{m}); len(got) != 1 || got[0].Status != Fail || !strings.Contains(got[0].Finding, want) {
			t.Errorf("%+v: %+v, want %q", m, got, want)
		}
	}
}
