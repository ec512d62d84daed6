// SPDX-License-Identifier: Apache-2.0

package sets

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// callTime bounds a call to etcd, atOnce how many chunks are in one: together they are below the 1.5 MiB that a request may have.
const (
	callTime = 10 * time.Second
	atOnce   = 4
)

// Store writes what a set has that etcd lacks, its manifest last, and returns how many chunks and bytes that were. A chunk that is damaged
// there is written again: whoever writes it writes what its name says.
func Store(ctx context.Context, c *clientv3.Client, keys cluster.Keys, s *Set) (chunks, bytes int, err error) {
	for rest := s.New; len(rest) > 0; {
		part, err := lacking(ctx, c, keys, rest[:min(atOnce, len(rest))])
		rest = rest[min(atOnce, len(rest)):]
		if err != nil {
			return chunks, bytes, fmt.Errorf("writing the set %s: %w", s.Name, err)
		}
		if len(part) == 0 {
			continue
		}
		var ops []clientv3.Op
		for _, chunk := range part {
			ops = append(ops, clientv3.OpPut(keys.Chunk(chunk.Hash), string(chunk.Deflated)))
		}
		if err := call(ctx, func(ctx context.Context) error {
			_, err := c.Txn(ctx).Then(ops...).Commit()
			return err
		}); err != nil {
			return chunks, bytes, fmt.Errorf("writing the set %s: %w", s.Name, err)
		}
		for _, chunk := range part {
			chunks, bytes = chunks+1, bytes+len(chunk.Deflated)
		}
	}
	err = call(ctx, func(ctx context.Context) error {
		_, err := c.Put(ctx, keys.Set(s.Hash), string(s.Manifest))
		return err
	})
	if err != nil {
		err = fmt.Errorf("writing the set %s: %w", s.Name, err)
	}
	return chunks, bytes, err
}

// lacking returns those of a few chunks that etcd does not have, or not as their names say.
func lacking(ctx context.Context, c *clientv3.Client, keys cluster.Keys, part []Chunk) (rest []Chunk, err error) {
	var ops []clientv3.Op
	for _, chunk := range part {
		ops = append(ops, clientv3.OpGet(keys.Chunk(chunk.Hash)))
	}
	var r *clientv3.TxnResponse
	if err := call(ctx, func(ctx context.Context) (err error) {
		r, err = c.Txn(ctx).Then(ops...).Commit()
		return err
	}); err != nil {
		return nil, err
	}
	for n, chunk := range part {
		if kvs := r.Responses[n].GetResponseRange().Kvs; len(kvs) > 0 {
			if _, err := Inflate(chunk.Hash, kvs[0].Value); err == nil {
				continue
			}
		}
		rest = append(rest, chunk)
	}
	return rest, nil
}

func call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return do(ctx)
}

// Manifest reads a manifest.
func Manifest(ctx context.Context, c *clientv3.Client, keys cluster.Keys, hash string) (m cluster.SetManifest, text []byte, err error) {
	err = call(ctx, func(ctx context.Context) error {
		r, err := c.Get(ctx, keys.Set(hash))
		if err == nil && len(r.Kvs) > 0 {
			text = r.Kvs[0].Value
		}
		return err
	})
	switch {
	case err != nil:
		return m, nil, fmt.Errorf("reading a set: %w", err)
	case text == nil:
		return m, nil, &GoneError{"manifest", hash}
	case hashOf(text) != hash:
		return m, nil, fmt.Errorf("manifest %.12s of a set: %w", hash, ErrChunk)
	}
	return m, text, json.Unmarshal(text, &m)
}

// GoneError says that etcd does not have a part of a set.
type GoneError struct{ What, Hash string }

// Error returns the error in one line.
func (e *GoneError) Error() string {
	return fmt.Sprintf("%s %.12s of a set is not in etcd: it was of an old revision; 'culvert fleet apply' writes the set again", e.What, e.Hash)
}

// chunks reads chunks, some at a time, and calls do with what each has.
func chunks(ctx context.Context, c *clientv3.Client, keys cluster.Keys, all []string, do func(hash string, text, deflated []byte) error) error {
	return raw(ctx, c, keys, all, func(hash string, deflated []byte) error {
		text, err := Inflate(hash, deflated)
		if err != nil {
			return err
		}
		return do(hash, text, deflated)
	})
}

// raw reads chunks, some at a time, and calls do with each as it is stored.
func raw(ctx context.Context, c *clientv3.Client, keys cluster.Keys, all []string, do func(hash string, deflated []byte) error) error {
	for len(all) > 0 {
		part := all[:min(atOnce, len(all))]
		all = all[len(part):]
		var ops []clientv3.Op
		for _, hash := range part {
			ops = append(ops, clientv3.OpGet(keys.Chunk(hash)))
		}
		var r *clientv3.TxnResponse
		if err := call(ctx, func(ctx context.Context) (err error) {
			r, err = c.Txn(ctx).Then(ops...).Commit()
			return err
		}); err != nil {
			return fmt.Errorf("reading a set: %w", err)
		}
		for n, hash := range part {
			kvs := r.Responses[n].GetResponseRange().Kvs
			if len(kvs) == 0 {
				return &GoneError{"chunk", hash}
			}
			if err := do(hash, kvs[0].Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read reads the manifest of that hash, and calls take with each chunk that has does not tell of, as it is stored.
func Read(ctx context.Context, c *clientv3.Client, keys cluster.Keys, hash string, has func(chunk string) bool,
	take func(chunk string, deflated []byte) error,
) (m cluster.SetManifest, manifest []byte, err error) {
	m, manifest, err = Manifest(ctx, c, keys, hash)
	if err != nil {
		return m, nil, err
	}
	var lacks []string
	seen := make(map[string]bool)
	for _, h := range All(m) {
		if !seen[h] && !has(h) {
			lacks = append(lacks, h)
		}
		seen[h] = true
	}
	return m, manifest, raw(ctx, c, keys, lacks, take)
}

// Before reads the set of a manifest for Make.
func Before(ctx context.Context, c *clientv3.Client, keys cluster.Keys, hash string) (*Former, error) {
	m, _, err := Manifest(ctx, c, keys, hash)
	if err != nil {
		return nil, err
	}
	f := &Former{SetManifest: m}
	var removed, added []string
	for _, part := range []struct {
		hashes []string
		into   *[]string
	}{{m.Chunks, &f.Whole}, {m.Removed, &removed}, {m.Added, &added}} {
		if err := chunks(ctx, c, keys, part.hashes, func(_ string, text, _ []byte) error {
			*part.into = append(*part.into, splitLines(text)...)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	f.Lines = join(subtract(f.Whole, removed), added)
	return f, nil
}

func splitLines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Collect deletes manifests that are not in kept, and the chunks that none of those kept names. The caller holds the lock of rollouts: nobody writes
// sets meanwhile.
func Collect(ctx context.Context, c *clientv3.Client, keys cluster.Keys, kept map[string]bool) (deleted int, err error) {
	used := make(map[string]bool)
	for hash := range kept {
		m, _, err := Manifest(ctx, c, keys, hash)
		if err != nil {
			return 0, err // without it nobody knows which chunks it needs
		}
		for _, h := range All(m) {
			used[h] = true
		}
	}
	for _, kind := range []struct {
		prefix string
		keep   map[string]bool
	}{{keys.Sets(), kept}, {keys.Chunks(), used}} {
		var names []string
		if err := call(ctx, func(ctx context.Context) error {
			r, err := c.Get(ctx, kind.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return err
			}
			for _, kv := range r.Kvs {
				if name := string(kv.Key[len(kind.prefix):]); !kind.keep[name] {
					names = append(names, name)
				}
			}
			return nil
		}); err != nil {
			return deleted, err
		}
		for len(names) > 0 {
			const most = 100 // etcd takes 128 operations at once
			part := names[:min(most, len(names))]
			names = names[len(part):]
			var ops []clientv3.Op
			for _, name := range part {
				ops = append(ops, clientv3.OpDelete(kind.prefix+name))
			}
			if err := call(ctx, func(ctx context.Context) error {
				_, err := c.Txn(ctx).Then(ops...).Commit()
				return err
			}); err != nil {
				return deleted, err
			}
			deleted += len(part)
		}
	}
	return deleted, nil
}
