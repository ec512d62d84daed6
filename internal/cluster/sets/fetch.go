// SPDX-License-Identifier: Apache-2.0

package sets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// Names of what a node keeps in the directory of its sets: a set is HASH, and beside it HASH.json is its manifest; chunks are in chunkDir.
const (
	manifestExt = ".json"
	chunkDir    = "chunks"
)

// keptSets is how many sets a node keeps beside those that are asked for and those that it has to keep: they may come back.
const keptSets = 8

// For returns what fetches the sets of a node's documents, as the agent calls it (agent.Options). Sets that kept names stay on disk: those of
// the documents that run, and of the last good ones, while others are fetched to be checked.
func For(name, node string, roles []string, dir string, kept ...func() []string) func(context.Context, *clientv3.Client, cluster.Revision) error {
	var one sync.Mutex // a revision and questions are fetched for at the same time
	return func(ctx context.Context, c *clientv3.Client, r cluster.Revision) error {
		one.Lock()
		defer one.Unlock()
		var keep []string
		for _, more := range kept {
			keep = append(keep, more()...)
		}
		return Fetch(ctx, c, cluster.KeysOf(name), dir, r.SetsOf(node, roles), keep...)
	}
}

// Fetch has a revision's sets in a directory, each in a file that is named by the hash of its manifest. It reads from etcd only what the
// directory lacks. Files that are there were written whole. Sets that are used no more are deleted, but not those of keep.
func Fetch(ctx context.Context, c *clientv3.Client, keys cluster.Keys, dir string, hashes []string, keep ...string) error {
	if len(hashes) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, chunkDir), 0o700); err != nil {
		return err
	}
	for _, hash := range hashes {
		if strings.Trim(hash, "0123456789abcdef") != "" || hash == "" {
			return fmt.Errorf("%q is no name of a set", hash)
		}
		if err := fetch(ctx, c, keys, dir, hash); err != nil {
			return err
		}
	}
	if err := syncDir(dir); err != nil { // the last good documents will name them
		return err
	}
	return tidy(dir, slices.Concat(hashes, keep))
}

func fetch(ctx context.Context, c *clientv3.Client, keys cluster.Keys, dir, hash string) error {
	path := filepath.Join(dir, hash)
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil { // used again
		return nil
	}
	have := make(map[string][]byte)
	has := func(h string) bool {
		deflated, err := os.ReadFile(filepath.Join(dir, chunkDir, h))
		if err == nil {
			have[h], err = Inflate(h, deflated)
		}
		return err == nil
	}
	m, manifest, err := Read(ctx, c, keys, hash, has, func(h string, deflated []byte) (err error) {
		if have[h], err = Inflate(h, deflated); err != nil {
			return err
		}
		return write(filepath.Join(dir, chunkDir, h), deflated)
	})
	if err != nil {
		return err
	}
	lines := func(hashes []string) (all []string) {
		for _, h := range hashes {
			all = append(all, splitLines(have[h])...)
		}
		return all
	}
	all := lines(m.Chunks)
	if len(m.Removed)+len(m.Added) > 0 {
		all = join(subtract(all, lines(m.Removed)), lines(m.Added))
	}
	if len(all) != m.Entries {
		return fmt.Errorf("set %s has %d entries instead of %d: %w", m.Name, len(all), m.Entries, ErrChunk)
	}
	var b bytes.Buffer
	for _, line := range all {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if err := write(path+manifestExt, manifest); err != nil {
		return err
	}
	return write(path, b.Bytes())
}

// write writes a file as a whole or not at all.
func write(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tidy deletes the sets that were not used for the longest time, and chunks that no set needs.
func tidy(dir string, used []string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	type set struct {
		hash string
		at   time.Time
	}
	var others []set
	keep := slices.Clone(used)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || e.IsDir() || strings.HasSuffix(e.Name(), manifestExt) || slices.Contains(used, e.Name()) {
			continue
		}
		if err != nil {
			return err
		}
		others = append(others, set{e.Name(), info.ModTime()})
	}
	slices.SortFunc(others, func(a, b set) int { return b.at.Compare(a.at) })
	for n, s := range others {
		if n < keptSets && !strings.HasPrefix(s.hash, ".") {
			keep = append(keep, s.hash)
			continue
		}
		for _, path := range []string{s.hash, s.hash + manifestExt} {
			if err := os.Remove(filepath.Join(dir, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	needed := make(map[string]bool)
	for _, hash := range keep {
		text, err := os.ReadFile(filepath.Join(dir, hash+manifestExt))
		var m cluster.SetManifest
		if err != nil || json.Unmarshal(text, &m) != nil {
			continue // its chunks are read again
		}
		for _, h := range All(m) {
			needed[h] = true
		}
	}
	there, err := os.ReadDir(filepath.Join(dir, chunkDir))
	if err != nil {
		return err
	}
	for _, e := range there {
		if !needed[e.Name()] {
			if err := os.Remove(filepath.Join(dir, chunkDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
