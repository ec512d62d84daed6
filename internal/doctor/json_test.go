// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"testing"
)

// TestFindingsReadBack writes findings as JSON and reads them. An unknown status is refused.
func TestFindingsReadBack(t *testing.T) {
	for _, status := range []Status{OK, Warn, Fail} {
		want := Finding{Status: status, Check: "link", Interface: "eth0", Finding: "down", Command: "ip link set dev eth0 up"}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Finding
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", b, got, err)
		}
	}
	var f Finding
	if err := json.Unmarshal([]byte(`{"status": "fine"}`), &f); err == nil {
		t.Errorf("an unknown status is read as %+v", f)
	}
}
