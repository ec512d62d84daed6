// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckPrefix returns an error if files whose names begin with prefix cannot be written. It is for a check before a measurement,
// which takes minutes.
func CheckPrefix(prefix string) error {
	dir, name := filepath.Split(prefix)
	if name == "" {
		return fmt.Errorf("write %q: say how names of files begin, such as %s", prefix, filepath.Join(prefix, "veth"))
	}
	dir = filepath.Clean(dir)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("write %s.json: there is no directory %s: make it first", prefix, dir)
	case err != nil:
		return fmt.Errorf("write %s.json: %w", prefix, err)
	case !info.IsDir():
		return fmt.Errorf("write %s.json: %s is no directory", prefix, dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("write %s.json: directory %s: %w", prefix, dir, err)
	}
	return nil
}

// WriteFiles writes PREFIX.json, PREFIX.md with the table, and the plots, if there is something to draw. It returns the names of the files.
func (r *Report) WriteFiles(prefix string) ([]string, error) {
	var asJSON, table bytes.Buffer
	if err := errors.Join(r.WriteJSON(&asJSON), r.WriteTable(&table)); err != nil {
		return nil, fmt.Errorf("write %s.json: %w", prefix, err)
	}
	for name, content := range map[string][]byte{prefix + ".json": asJSON.Bytes(), prefix + ".md": table.Bytes()} {
		if err := writeFile(name, content); err != nil {
			return nil, err
		}
	}
	if len(r.Plots()) == 0 {
		return []string{prefix + ".json", prefix + ".md"}, nil
	}
	plots, err := r.WritePlots(prefix)
	return append([]string{prefix + ".json", prefix + ".md"}, plots...), err
}

// WritePlots writes each plot as PREFIX-KIND.svg, and returns the names of the files.
func (r *Report) WritePlots(prefix string) ([]string, error) {
	var names []string
	for _, p := range r.Plots() {
		name := prefix + "-" + p.Kind + ".svg"
		if err := writeFile(name, p.SVG); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("plot scenario %s: no row has figures that can be drawn", r.Scenario)
	}
	return names, nil
}

// writeFile replaces a file completely or, on an error, not at all.
func writeFile(name string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Prefix is the prefix of the names of a report's files: the name of the JSON file without its extension.
func Prefix(file string) string { return strings.TrimSuffix(file, filepath.Ext(file)) }
