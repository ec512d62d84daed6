// SPDX-License-Identifier: Apache-2.0

// Command genapi writes docs/api.yaml, which describes the answers of internal/api, from their Go types and the comments on
// these. It runs in the folder internal/genapi.
package main

import (
	"fmt"
	"os"
)

//go:generate go run .

// Paths from the folder in which the command runs.
const (
	out = "../../docs/api.yaml"
	top = "../.."
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "genapi:", err)
		os.Exit(1)
	}
}

func run() error {
	text, err := document(top)
	if err != nil {
		return err
	}
	return os.WriteFile(out, text, 0o644)
}
