// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"culvert/internal/filter/filterplane"
)

// setFile is how the name of a file with the entries of a set ends.
const setFile = ".set"

// writeSets writes a file for each set that has entries into a directory, which it makes if there is none, or on an error none. It returns the
// absolute paths of the files, since a relative path in a configuration begins at its own directory.
func (d *dumped) writeSets(dir string) (paths map[string]string, err error) {
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("a directory for the entries of sets: %w", err)
	}
	paths = make(map[string]string)
	made := make(map[string]string) // temporary names, by those that the files get
	defer func() {
		for _, name := range made {
			os.Remove(name)
		}
	}()
	for _, s := range d.filter.Sets {
		if d.empty(s) {
			continue
		}
		path := filepath.Join(dir, s.Name+setFile)
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("writing the entries of set %s: %s is there already, and is no file", s.Name, path)
		}
		if made[path], err = writeEntries(dir, s, d.entries(s)); err != nil {
			return nil, fmt.Errorf("writing the entries of set %s: %w", s.Name, err)
		}
		paths[s.Name] = path
	}
	for path, name := range made {
		if err := os.Rename(name, path); err != nil {
			return nil, fmt.Errorf("writing the entries of sets: %w", err)
		}
		delete(made, path)
	}
	return paths, nil
}

// writeEntries writes a temporary file with the entries of a set and returns its name, also with an error.
func writeEntries(dir string, s filterplane.Set, entries iter.Seq[string]) (name string, err error) {
	f, err := os.CreateTemp(dir, "."+s.Name+"-*")
	if err != nil {
		return "", err
	}
	w := bufio.NewWriter(f)
	for text := range entries {
		w.WriteString(text)
		w.WriteByte('\n') // Flush returns the first error
	}
	return f.Name(), errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), f.Close())
}
