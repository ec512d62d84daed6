// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

func TestLostDecaps(t *testing.T) {
	if found := checkLostDecaps(nil); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	for want, d := range map[string]LostDecap{
		"no process waits for it":           {},
		"the process attaches when it does": {Served: true},
		"no process attaches to it":         {Exists: true},
		"the log of the process says why":   {Exists: true, Served: true},
	} {
		d.Interface, d.Command = "eth0", "mend"
		found := checkLostDecaps([]LostDecap{d})
		if len(found) != 1 || found[0].Status != Fail || found[0].Interface != "eth0" || !strings.Contains(found[0].Finding, want) ||
			(found[0].Command == "mend") == (d.Served && !d.Exists) {
			t.Errorf("%+v: %+v", d, found)
		}
	}
}

func TestOpenDecaps(t *testing.T) {
	if found := checkDecaps(nil); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	found := checkDecaps([]string{"eth0", "eth1"})
	if len(found) != 2 || found[1].Status != Warn || found[1].Interface != "eth1" || !strings.Contains(found[1].Command, "decap add eth1 --from") {
		t.Errorf("%+v", found)
	}
}
