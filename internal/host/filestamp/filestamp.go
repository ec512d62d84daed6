// SPDX-License-Identifier: Apache-2.0

// Package filestamp tells whether files have changed since they were read.
package filestamp

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"
)

// hashed is the size up to which a file's content counts, so that a file which was only touched counts as unchanged.
const hashed = 1 << 20

// Stamp identifies the content of a file at a time.
type Stamp struct {
	Path string `json:"path"`
	// Size is in bytes, and Modified in nanoseconds since the epoch. Both are 0 for a file that cannot be read.
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"`
	// Hash is that of the content, in hexadecimal digits, of a file that is not large.
	Hash string `json:"hash,omitempty"`
}

// Of returns the present stamp of a file, with its absolute path.
func Of(path string) Stamp {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	s := stat(path)
	if s.Modified != 0 && s.Size <= hashed {
		s.Hash = hash(path)
	}
	return s
}

// All returns the stamps of several files that were read since a time. One that has changed since then may have had another content
// when it was read, and counts as changed.
func All(paths []string, since time.Time) (all []Stamp) {
	for _, p := range paths {
		s := Of(p)
		if at := time.Unix(0, s.Modified); !at.Before(since) && !at.After(time.Now()) {
			s.Size, s.Hash = -1, ""
		}
		all = append(all, s)
	}
	return all
}

func stat(path string) Stamp {
	s := Stamp{Path: path}
	if info, err := os.Stat(path); err == nil {
		s.Size, s.Modified = info.Size(), info.ModTime().UnixNano()
	}
	return s
}

func hash(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Changed tells whether the file has another content now.
func (s Stamp) Changed() bool {
	now := stat(s.Path)
	if now.Size == s.Size && now.Modified == s.Modified {
		return false
	}
	return now.Size != s.Size || s.Hash == "" || hash(s.Path) != s.Hash
}
