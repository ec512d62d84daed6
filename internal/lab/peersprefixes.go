// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"culvert/internal/lab/prefixes"
)

// BuildPrefixes copies the table of real prefixes beside the reference programs, unless it is there already, and writes a line
// to out. It needs the go command, which knows the directory of the module that has the table.
func (p Peers) BuildPrefixes(ctx context.Context, out io.Writer) error {
	path := filepath.Join(p.Bin, prefixes.File)
	if p.Module == "" {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("the table of prefixes is not in %s: run 'culvert lab build' in a checkout of culvert, or bin/culvert from one", p.Bin)
		}
		return nil
	}
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// The table is in a dependency of culvert's own module, which is in the parent directory of the reference programs' module.
	module := filepath.Dir(p.Module)
	want, err := digest(module)
	if err != nil {
		return err
	}
	built := p.stamps()
	if _, err := os.Stat(path); err == nil && built[prefixes.File] == want {
		return nil
	}
	from, err := prefixes.Find(ctx, module)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy the table of prefixes: %w", err)
	}
	// Renaming replaces the file in one step, so that nobody reads a part of it.
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return fmt.Errorf("copy the table of prefixes: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("copy the table of prefixes: %w", err)
	}
	built[prefixes.File] = want
	if err := p.setStamps(built); err != nil {
		return err
	}
	progress(out, "table of prefixes in %s", path)
	return nil
}
