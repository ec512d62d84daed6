// SPDX-License-Identifier: Apache-2.0

// Package sets has the large sets of a cluster's documents in etcd: cut into chunks that are named by what they contain, so that only
// differences are written and read.
package sets

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"culvert/internal/cluster"
)

// Bounds of chunks, in bytes before they are deflated.
const (
	// MostChunk is the most that a chunk has.
	MostChunk = 256 << 10
	// usual is what a chunk has on average, and least what it has at least unless it is the last one.
	usual = 64 << 10
	least = 16 << 10
)

// mostChanged is which share of the lines may be taken out and added before the chunks are cut anew: a tenth.
const mostChanged = 10

// Chunk is a piece of a set.
type Chunk struct {
	Hash string
	// Deflated is what is stored.
	Deflated []byte
}

// Lines returns the entries of a file, each with its timeout, in a line each: sorted, without comments, each once. Whether they are entries, the
// filter says.
func Lines(text []byte) []string {
	var all []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		for n := 0; n < len(words); n++ {
			entry := words[n]
			if n+2 < len(words) && words[n+1] == "timeout" {
				entry += " timeout " + words[n+2]
				n += 2
			}
			all = append(all, entry)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Set is a set in chunks.
type Set struct {
	cluster.SetManifest
	// Hash names the manifest, whose JSON is Manifest.
	Hash     string
	Manifest []byte
	// New are the chunks that the set before did not have.
	New []Chunk
}

// cut returns lines in chunks. A chunk ends behind a line whose hash says so: a line more or less moves no other end.
func cut(lines []string) (chunks []Chunk, err error) {
	var piece bytes.Buffer
	end := func() error {
		if piece.Len() == 0 {
			return nil
		}
		c, err := newChunk(piece.Bytes())
		chunks = append(chunks, c)
		piece.Reset()
		return err
	}
	const averageLine = 16
	for _, line := range lines {
		if piece.Len()+len(line)+1 > MostChunk {
			if err := end(); err != nil {
				return nil, err
			}
		}
		piece.WriteString(line)
		piece.WriteByte('\n')
		h := fnv.New64a()
		_, _ = io.WriteString(h, line)
		if piece.Len() >= least && h.Sum64()>>32%((usual-least)/averageLine) == 0 {
			if err := end(); err != nil {
				return nil, err
			}
		}
	}
	return chunks, end()
}

func newChunk(text []byte) (Chunk, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return Chunk{}, err
	}
	if _, err := w.Write(text); err != nil {
		return Chunk{}, err
	}
	if err := w.Close(); err != nil {
		return Chunk{}, err
	}
	return Chunk{hashOf(text), b.Bytes()}, nil
}

func hashOf(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

// ErrChunk says that a chunk is not what its name says.
var ErrChunk = errors.New("it does not have the content that its name says")

// Inflate returns the lines of a chunk. It refuses one that has another content than its hash says, or more than a chunk has.
func Inflate(hash string, deflated []byte) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(deflated))
	text, err := io.ReadAll(io.LimitReader(r, MostChunk+1))
	if err != nil || len(text) > MostChunk || hashOf(text) != hash {
		return nil, fmt.Errorf("chunk %.12s of a set: %w", hash, ErrChunk)
	}
	return text, nil
}

// subtract returns the lines of a that are not in b. Both are sorted.
func subtract(a, b []string) (rest []string) {
	for _, line := range a {
		for len(b) > 0 && b[0] < line {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == line {
			continue
		}
		rest = append(rest, line)
	}
	return rest
}

// join returns the lines of both, sorted.
func join(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
