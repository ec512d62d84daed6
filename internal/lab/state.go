// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// stateDir has the file NAME.json and the directory NAME of each lab.
const stateDir = "/run/culvert/lab"

// nameRule keeps names usable as a part of a namespace's name and of a path.
var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func checkName(name string) error {
	if !nameRule.MatchString(name) {
		return fmt.Errorf("lab name %q: use 1 to 32 lower-case letters, digits and hyphens, not a hyphen first", name)
	}
	return nil
}

func labDir(name string) string    { return filepath.Join(stateDir, name) }
func stateFile(name string) string { return filepath.Join(stateDir, name+".json") }

// claim reserves the lab's name by creating its state file, which only one process
// can do. It returns an error if a namespace of that name exists that no lab has
// made, so that remove never deletes such a namespace.
func (l *Lab) claim() error {
	for _, ns := range l.Namespaces {
		if _, err := os.Lstat(netnsPath(ns.NetNS)); err == nil {
			if _, err := os.Lstat(stateFile(l.Name)); err == nil {
				return alreadyUp(l.Name)
			}
			return fmt.Errorf("lab %s: namespace %s is there already, but not from a lab: remove it with 'ip netns delete %s' or choose another --name",
				l.Name, ns.NetNS, ns.NetNS)
		}
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return fmt.Errorf("lab %s: %w", l.Name, err)
	}
	f, err := os.OpenFile(stateFile(l.Name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return alreadyUp(l.Name)
	}
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Name, err)
	}
	if err := join(f.Close(), l.save(), os.MkdirAll(filepath.Join(l.Dir, "logs"), 0o755), removeFailedLogs(l.Name)); err != nil {
		return join(fmt.Errorf("lab %s: %w", l.Name, err), os.RemoveAll(l.Dir), l.release())
	}
	return nil
}

func alreadyUp(name string) error {
	if l, err := Open(name); err == nil && !l.Ready {
		return fmt.Errorf("lab %s is incomplete: an 'up' of that name was killed or still runs: remove it with 'culvert lab down %s' or choose another --name",
			name, name)
	}
	return fmt.Errorf("lab %s is up already: take it down with 'culvert lab down %s' or choose another --name", name, name)
}

// save replaces the state file in one step.
func (l *Lab) save() error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("lab %s: encode state: %w", l.Name, err)
	}
	tmp := stateFile(l.Name) + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("lab %s: write state: %w", l.Name, err)
	}
	if err := os.Rename(tmp, stateFile(l.Name)); err != nil {
		return fmt.Errorf("lab %s: write state: %w", l.Name, err)
	}
	return nil
}

func (l *Lab) release() error {
	for _, f := range []string{stateFile(l.Name) + ".new", stateFile(l.Name)} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lab %s: %w", l.Name, err)
		}
	}
	return nil
}

var errNoLab = errors.New("no lab")

// Open returns a lab that is up, whichever process has set it up.
func Open(name string) (*Lab, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	b, err := os.ReadFile(stateFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w %s is up: see 'culvert lab list'", errNoLab, name)
	}
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", name, err)
	}
	// The file is empty if Up was killed before it wrote the state. Nothing else
	// had been made by then.
	l := &Lab{Name: name, Dir: labDir(name)}
	if len(b) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, fmt.Errorf("lab %s: %s does not parse: %w", name, stateFile(name), err)
	}
	if l.Name != name || l.Dir != labDir(name) {
		return nil, fmt.Errorf("lab %s: %s describes another lab", name, stateFile(name))
	}
	return l, nil
}

// List returns the labs that are up, by name.
func List() ([]*Lab, error) {
	files, err := filepath.Glob(filepath.Join(stateDir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	slices.Sort(files)
	labs := make([]*Lab, 0, len(files))
	for _, f := range files {
		l, err := Open(strings.TrimSuffix(filepath.Base(f), ".json"))
		if errors.Is(err, errNoLab) {
			continue // taken down meanwhile
		}
		if err != nil {
			return nil, err
		}
		labs = append(labs, l)
	}
	return labs, nil
}
