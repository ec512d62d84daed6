// SPDX-License-Identifier: Apache-2.0

// Package filestamp tells whether files have changed since they were read.
package filestamp

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
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

// Of returns the present stamp of a file.
func Of(path string) Stamp {
	s := stat(path)
	if s.Modified != 0 && s.Size <= hashed {
		s.Hash = hash(path)
	}
	return s
}

// All returns the stamps of several files.
func All(paths []string) (all []Stamp) {
	for _, p := range paths {
		all = append(all, Of(p))
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
