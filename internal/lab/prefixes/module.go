// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Module is the Go module that has the table among its test data.
const Module = "github.com/gaissmai/bart"

// Find returns the path of the table in the module cache, for the checkout of culvert that dir is in. It downloads the module
// if the cache does not have it.
func Find(ctx context.Context, dir string) (string, error) {
	where, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Dir}}", Module)
	if err == nil && where == "" {
		if _, err = goCommand(ctx, dir, "mod", "download", Module); err == nil {
			where, err = goCommand(ctx, dir, "list", "-m", "-f", "{{.Dir}}", Module)
		}
	}
	if err != nil {
		return "", fmt.Errorf("find the module %s with the table of prefixes: %w", Module, err)
	}
	path := filepath.Join(where, "internal", "tests", "testdata", File)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the table of prefixes in %s: %w: go.mod must name a version that has it", Module, err)
	}
	return path, nil
}

// goCommand runs the go command in a directory and returns what it prints. The error is one line.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Flags and workspace of the caller must not apply to this command.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(errors.String()), "\n")
		return "", fmt.Errorf("go %s in %s: %w: %s", strings.Join(args, " "), dir, err, lines[len(lines)-1])
	}
	return strings.TrimSpace(string(out)), nil
}
