// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// KeepLine writes a line that remains on a terminal, where other lines replace each other.
func TestKeptLine(t *testing.T) {
	var out bytes.Buffer
	KeepLine(&progress{out: &out, columns: 10, now: time.Now}, "leaving a row out")
	if !strings.HasSuffix(out.String(), "leaving a row out\n") {
		t.Errorf("a terminal gets %q", &out)
	}
	out.Reset()
	KeepLine(&progress{out: &out, now: time.Now}, "leaving a row out")
	if out.String() != "leaving a row out\n" {
		t.Errorf("a file gets %q", &out)
	}
}
