// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"strings"
	"testing"
)

func TestOnlyStaticProgramsGoIntoGuests(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(self); err != nil {
		t.Errorf("this test is linked statically: %v", err)
	}
	if err := checkStatic("/bin/sh"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("/bin/sh is linked dynamically, and the error is %v", err)
	}
	if err := checkStatic("/nowhere"); err == nil {
		t.Error("no error for a program that is not there")
	}
}
