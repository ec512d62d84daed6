// SPDX-License-Identifier: Apache-2.0

// Command gendashboards writes the dashboards of dist/grafana. It runs in the folder internal/gendashboards.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run .

// out is the directory of the dashboards.
const out = "../../dist/grafana"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gendashboards:", err)
		os.Exit(1)
	}
}

func run() error {
	for _, b := range boards {
		text, err := b.render()
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		if err := os.WriteFile(filepath.Join(out, b.name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
