// SPDX-License-Identifier: Apache-2.0

package sets

import (
	"encoding/json"

	"culvert/internal/cluster"
)

// Former is the set of that name in the revision before.
type Former struct {
	cluster.SetManifest
	// Whole are the lines of its Chunks, without what the manifest takes out and adds.
	Whole []string
	// Lines are its lines.
	Lines []string
}

// Make returns a set with these lines (Lines). It shares chunks with former, which is nil for none: those that are the same, or all of them, beside
// what is to be taken out and added, whichever is less to transfer.
func Make(name, kind string, lines []string, former *Former) (*Set, error) {
	whole, err := cut(lines)
	if err != nil {
		return nil, err
	}
	s := &Set{SetManifest: cluster.SetManifest{Name: name, Type: kind, Entries: len(lines), Chunks: hashes(whole)}}
	known := make(map[string]bool)
	if former != nil {
		for _, h := range former.all() {
			known[h] = true
		}
	}
	s.New = unknown(whole, known)
	if former != nil {
		removed, added := subtract(former.Whole, lines), subtract(lines, former.Whole)
		if (len(removed)+len(added))*mostChanged <= len(lines) {
			out, err := cut(removed)
			if err != nil {
				return nil, err
			}
			in, err := cut(added)
			if err != nil {
				return nil, err
			}
			if more := append(unknown(out, known), unknown(in, known)...); size(more) < size(s.New) {
				s.Chunks, s.Removed, s.Added, s.New = former.Chunks, hashes(out), hashes(in), more
			}
		}
	}
	if s.Manifest, err = json.Marshal(s.SetManifest); err != nil {
		return nil, err
	}
	s.Hash = hashOf(s.Manifest)
	return s, nil
}

func (f *Former) all() []string { return All(f.SetManifest) }

// All returns the hashes of all chunks of a set.
func All(m cluster.SetManifest) []string {
	return append(append(append([]string{}, m.Chunks...), m.Removed...), m.Added...)
}

func hashes(chunks []Chunk) (all []string) {
	for _, c := range chunks {
		all = append(all, c.Hash)
	}
	return all
}

// unknown returns the chunks that are not known, each once.
func unknown(chunks []Chunk, known map[string]bool) (rest []Chunk) {
	seen := make(map[string]bool)
	for _, c := range chunks {
		if !known[c.Hash] && !seen[c.Hash] {
			rest = append(rest, c)
			seen[c.Hash] = true
		}
	}
	return rest
}

func size(chunks []Chunk) (n int) {
	for _, c := range chunks {
		n += len(c.Deflated)
	}
	return n
}
