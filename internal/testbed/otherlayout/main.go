// SPDX-License-Identifier: Apache-2.0

// Command otherlayout has the pinned data plane in a directory look as if a version of culvert had made it whose maps all have
// another layout, for scripts/test-deb.sh.
package main

import (
	"fmt"
	"os"

	"culvert/internal/testbed"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: otherlayout DIR")
		os.Exit(2)
	}
	err := testbed.ChangeDescription(os.Args[1], func(d map[string]any) {
		for name := range d["Layouts"].(map[string]any) {
			d["Layouts"].(map[string]any)[name] = "another"
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "otherlayout:", err)
		os.Exit(1)
	}
}
