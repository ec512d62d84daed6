// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var updateFlag = flag.Bool("update", false, "take what is found for right, as scripts/test-drivers.sh will write it")

// results are what a run has found out, on one kernel.
type results struct{ Kernel }

func newResults() *results {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail
	release := strings.Split(unix.ByteSliceToString(u.Release[:]), ".")
	return &results{Kernel{Line: strings.Join(release[:2], "."), Drivers: make(map[string]map[string]string)}}
}

func (r *results) set(driver, row, outcome string) {
	if r.Drivers[driver] == nil {
		r.Drivers[driver] = make(map[string]string)
	}
	r.Drivers[driver][row] = outcome
}

func (r *results) get(driver, row string) string { return r.Drivers[driver][row] }

// compare compares the results with those that the page shows. It prints them, for scripts/test-drivers.sh to write new ones.
func (r *results) compare(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(r.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stdout, "results: %s\n", text)
	known, err := Results()
	if err != nil {
		t.Fatal(err)
	}
	for driver, rows := range r.Drivers {
		for row, outcome := range rows {
			switch was := known.Of(r.Line, driver, row); was {
			case outcome:
			case "":
				t.Logf("docs/drivers.md lacks %s, %s, on Linux %s: %q; UPDATE=1 adds it", driver, row, r.Line, outcome)
			default:
				say := t.Errorf
				if *updateFlag {
					say = t.Logf
				}
				say("%s, %s, on Linux %s: %q, and docs/drivers.md has %q", driver, row, r.Line, outcome, was)
			}
		}
	}
}
