// SPDX-License-Identifier: Apache-2.0

// Package lastgood keeps on disk which documents of its cluster a node has run, so that it starts with them when etcd cannot be
// reached, and which urgent changes it has carried out.
package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"culvert/internal/cluster"
	"culvert/internal/config"
)

// Set is what a node runs beside its own file.
type Set struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Revision is that of the documents, 0 if there are none.
	Revision int64 `json:"revision"`
	// Documents are in the order in which they are merged.
	Documents []Document `json:"documents"`
	// Sets are the hashes of the sets that they name (cluster.SetManifest).
	Sets []string `json:"sets,omitempty"`
}

// Document is a document of a revision.
type Document struct {
	Scope string `json:"scope"`
	Text  []byte `json:"text"`
}

// Digest returns the SHA-256 of the documents with their scopes, 16 hexadecimal digits of it, "" without documents.
func (s *Set) Digest() string {
	if s == nil || len(s.Documents) == 0 {
		return ""
	}
	h := sha256.New()
	for _, d := range s.Documents {
		fmt.Fprintf(h, "%d %s %d ", len(d.Scope), d.Scope, len(d.Text))
		h.Write(d.Text)
	}
	const digits = 16
	return hex.EncodeToString(h.Sum(nil))[:digits]
}

// Remotes returns the documents for config.Load. Relative paths in them start at dir.
func (s *Set) Remotes(dir string) (all []config.Remote) {
	if s == nil {
		return nil
	}
	for _, d := range s.Documents {
		all = append(all, config.Remote{Name: "etcd:" + d.Scope, Text: d.Text, Dir: dir})
	}
	return all
}

// Kept is how many sets are kept beside the last good one.
const Kept = 2

// Store is a directory of sets.
type Store struct{ dir string }

// In returns the store in a directory, which Save makes.
func In(dir string) Store { return Store{dir} }

func (s Store) path(age int) string {
	if age == 0 {
		return filepath.Join(s.dir, "last-good")
	}
	return filepath.Join(s.dir, fmt.Sprintf("last-good.%d", age))
}

// Save stores a set that runs as the last good one. Those before it stay, up to Kept. A crash leaves the one or the other.
func (s Store) Save(set *Set) error {
	text, err := json.Marshal(set)
	if err != nil {
		return fmt.Errorf("keeping the last good documents: %w", err)
	}
	if err := s.save(text); err != nil {
		return fmt.Errorf("keeping the last good documents in %s: %w", s.dir, err)
	}
	return nil
}

func (s Store) save(text []byte) error {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return err
	}
	sealed := seal(text)
	if now, err := os.ReadFile(s.path(0)); err == nil {
		if bytes.Equal(now, sealed) {
			return nil
		}
		if _, err := unseal(now); err == nil { // a corrupt one is of no use
			if err := s.age(); err != nil {
				return err
			}
		}
	}
	return replace(s.path(0), sealed)
}

// age gives the stored sets the names of older ones. A link keeps the last good one under both names, so that there is always one.
func (s Store) age() error {
	for n := Kept; n > 1; n-- {
		if err := os.Rename(s.path(n-1), s.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(s.path(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(s.path(0), s.path(1))
}

// ErrLost says that there were last good documents, and that none of them can be read.
var ErrLost = errors.New("none of the last good documents is left")

// Load returns the newest set of a cluster and a node that can be read, nil if there is none. Problem says in one line why it is not the
// last good one, nil if it is. It matches ErrLost if what the node has run is not known any more.
func (s Store) Load(name, node string) (set *Set, problem error) {
	var problems []error
	lost := false
	for age := range Kept + 1 {
		one, err := s.read(s.path(age))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			lost = true
		case one.Cluster != name || one.Node != node:
			err = fmt.Errorf("%s is of node %s of cluster %s: it is left alone", s.path(age), one.Node, one.Cluster)
		default:
			set = one
		}
		if set != nil {
			break
		}
		problems = append(problems, err)
	}
	switch {
	case len(problems) == 0:
		return set, nil
	case set == nil && lost:
		return nil, fmt.Errorf("%w: %s", ErrLost, list(problems))
	case set == nil:
		return nil, fmt.Errorf("none of the last good documents is this node's: %s", list(problems))
	}
	return set, fmt.Errorf("%w: those of revision %d, from before, are used", problems[0], set.Revision)
}

// list returns errors in one line.
func list(all []error) string {
	texts := make([]string, len(all))
	for n, err := range all {
		texts[n] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Sets returns the hashes of the sets that the stored documents name, so that they stay on disk as long.
func (s Store) Sets() (hashes []string) {
	for age := range Kept + 1 {
		if set, err := s.read(s.path(age)); err == nil { // Load tells of others
			hashes = append(hashes, set.Sets...)
		}
	}
	return hashes
}

func (s Store) read(path string) (*Set, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text, err := unseal(b)
	set := new(Set)
	if err == nil {
		err = json.Unmarshal(text, set)
	}
	if err == nil {
		err = set.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is corrupt: %w", path, err)
	}
	return set, nil
}

// Modes of what is stored: documents may say what only operators are to know.
const (
	dirMode  = 0o700
	fileMode = 0o600
)

// seal puts the SHA-256 of a text in front of it.
func seal(text []byte) []byte {
	sum := sha256.Sum256(text)
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), text...)
}

// unseal returns the text that seal was given.
func unseal(b []byte) ([]byte, error) {
	sum, text, found := bytes.Cut(b, []byte("\n"))
	is := sha256.Sum256(text)
	if !found || string(sum) != hex.EncodeToString(is[:]) {
		return nil, errors.New("its checksum is another one")
	}
	return text, nil
}

// WriteSealed writes a file that a crash leaves as it was or as it is to be, readable by its owner alone.
func WriteSealed(path string, text []byte) error {
	sealed := seal(text)
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, sealed) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	return replace(path, sealed)
}

// ReadSealed reads a file that WriteSealed has written. The error matches fs.ErrNotExist if there is none.
func ReadSealed(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return unseal(b)
}

// replace writes a file so that a crash leaves the old content or the new one.
func replace(path string, content []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// check refuses scopes that are none.
func (s *Set) check() error {
	for _, d := range s.Documents {
		if _, err := cluster.ParseScope(d.Scope); err != nil {
			return err
		}
	}
	return nil
}
