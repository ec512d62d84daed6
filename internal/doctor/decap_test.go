// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
)

func TestOpenDecaps(t *testing.T) {
	if found := checkDecaps(nil); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	found := checkDecaps([]string{"eth0", "eth1"})
	if len(found) != 2 || found[1].Status != Warn || found[1].Interface != "eth1" || !strings.Contains(found[1].Command, "decap eth1 --from") {
		t.Errorf("%+v", found)
	}
}
