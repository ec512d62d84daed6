// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/scionproto/scion/private/keyconf"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/config"
	"culvert/internal/host/trust"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// keyPaths returns the paths of the AS master keys. The reference wants both.
func (r *Router) keyPaths() (key0, key1 string) {
	dir := filepath.Join(r.Config.General.ConfigDir, "keys")
	return filepath.Join(dir, keyconf.MasterKey0), filepath.Join(dir, keyconf.MasterKey1)
}

// masterKeySize is the length in bytes of an AS master key, as scion-pki and the topology
// generator write it.
const masterKeySize = 16

// Scheduled tells whether the keys follow a schedule.
func (r *Router) Scheduled() bool { return len(r.schedule) > 0 }

// loadKeys reads the AS master keys and derives the forwarding keys from them: those of the schedule or, without one, the first of
// the router's own directory. With need set it is an error if files of that directory are missing.
//
// A router keeps the keys that it has once had: a configuration that comes back has those of its time.
func (r *Router) loadKeys(need bool) error {
	if r.keysLoaded {
		return nil
	}
	if r.Scheduled() {
		err := r.loadSchedule()
		r.keysLoaded = err == nil
		return err
	}
	path0, path1 := r.keyPaths()
	key0, err := readKey(path0, r.Path, need)
	if err != nil {
		return err
	}
	if _, err := readKey(path1, r.Path, need); err != nil {
		return err
	}
	r.Keys = nil
	if key0 != nil {
		r.Keys = []keyring.Key{derive(key0)}
	}
	r.keysLoaded = need
	return nil
}

// derive returns the forwarding key of a master key.
func derive(master []byte) (k keyring.Key) {
	copy(k.Secret[:], control.DeriveHFMacKey(master))
	k.ID = scionplane.KeyID(k.Secret)
	return k
}

// loadSchedule reads the keys of the schedule.
func (r *Router) loadSchedule() error {
	var errs config.Errors
	keys := make([]keyring.Key, 0, len(r.schedule))
	files := make(map[string]string)
	for _, t := range r.schedule {
		master, err := readMaster(t.File)
		if err != nil {
			errs.Add(t.Locate("file", fmt.Errorf("key %s: %w", t.File, err)))
			continue
		}
		k := derive(master)
		k.Span = t.span
		if other, ok := files[k.ID]; ok {
			errs.Add(t.Locate("file", fmt.Errorf("key %s is the same as %s: make a new one", t.File, other)))
		}
		files[k.ID] = t.File
		keys = append(keys, k)
	}
	keyring.Sort(keys)
	r.Keys = keys
	return errs.Err()
}

// readMaster decodes a file with a master key.
func readMaster(path string) ([]byte, error) {
	raw, err := trust.Secret(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, err
	}
	key := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(key, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: write %d bytes in standard base64", err, masterKeySize)
	}
	if n != masterKeySize {
		return nil, fmt.Errorf("%d bytes long: write %d bytes in standard base64", n, masterKeySize)
	}
	return key[:n], nil
}

// readKey decodes the key file at path, below general.config_dir of the file toml. A missing file is an error if need is
// set; otherwise the key is nil.
func readKey(path, toml string, need bool) ([]byte, error) {
	key, err := readMaster(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !need:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, missing(path, toml, "the AS's master key", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, cannotRead(path, err)
	case err != nil:
		return nil, badField(path)("master key", "%w", err)
	}
	return key, nil
}

// KeyTable is a table [[scion.key]]: a master key and when it is valid.
type KeyTable struct {
	config.Position

	// File is the path of the file with the master key, as master0.key. A relative path starts at the directory of the file
	// that has the table.
	File string `toml:"file"`
	// NotBefore is when the key begins to be valid, and NotAfter when it ends. Without them the key has no bound. Each is a time
	// with its offset from UTC, and any other value is refused by checkKeys.
	NotBefore any `toml:"not_before"`
	NotAfter  any `toml:"not_after"`

	span keyring.Span
}

// instant returns the time that a key of a table has.
func instant(value any) (at time.Time, err error) {
	const example = "2026-12-01T00:00:00Z"
	switch v := value.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		at = v
	case string:
		if at, err = time.Parse(time.RFC3339, v); err != nil {
			return at, fmt.Errorf("%q is no time: write it as %s", v, example)
		}
	case toml.LocalDateTime:
		return at, fmt.Errorf("%s has no offset from UTC: write %sZ, or +01:00 in the place of Z", v, v)
	default:
		return at, fmt.Errorf("%v is no time: write it as %s", v, example)
	}
	if at.Before(time.Unix(0, 0)) {
		return at, fmt.Errorf("%s is before 1970", keyring.Text(at))
	}
	if at.After(time.Unix(0, math.MaxInt64)) { // the programs count nanoseconds
		return at, fmt.Errorf("%s is after 2262: leave it out for a key without a bound", keyring.Text(at))
	}
	return at.UTC(), nil
}

// readTimes sets the span.
func (k *KeyTable) readTimes() error {
	var errs config.Errors
	for _, t := range []struct {
		field string
		value any
		to    *time.Time
	}{
		{keyring.FieldNotBefore, k.NotBefore, &k.span.NotBefore},
		{keyring.FieldNotAfter, k.NotAfter, &k.span.NotAfter},
	} {
		at, err := instant(t.value)
		if err != nil {
			errs.Add(k.Locate(t.field, fmt.Errorf("scion.key.%s: %w", t.field, err)))
		}
		*t.to = at
	}
	return errs.Err()
}

// clock is time.Now, but in tests.
var clock = time.Now

// checkKeys checks the tables of keys, but not the files that they name.
func (s *Table) checkKeys(in config.Position) error {
	var errs config.Errors
	files := make(map[string]bool)
	spans := make([]keyring.Span, len(s.Key))
	for n := range s.Key {
		k := &s.Key[n]
		k.Position = in.In(fmt.Sprintf("key[%d]", n))
		errs.Add(k.readTimes())
		spans[n] = k.span
		if k.File == "" {
			errs.Add(k.Locate("", errors.New("file of the key is missing: name the file with the master key")))
			continue
		}
		k.File = k.Relative("file", k.File)
		if files[k.File] {
			errs.Add(k.Locate("file", fmt.Errorf("key %s is there twice: give it one [[scion.key]]", k.File)))
		}
		files[k.File] = true
	}
	if len(s.Key) > scionplane.MostScheduled {
		k := s.Key[scionplane.MostScheduled]
		errs.Add(k.Locate("", fmt.Errorf("%d keys: a schedule has at most %d: take those out that have ended", len(s.Key), scionplane.MostScheduled)))
	}
	if len(errs) > 0 || len(s.Key) == 0 {
		return errs.Err()
	}
	err := keyring.Check(spans)
	if err == nil {
		err = keyring.CheckNow(spans, clock())
	}
	if bad := new(keyring.SpanError); errors.As(err, &bad) {
		k := s.Key[bad.Index]
		errs.Add(k.Locate(bad.Field, fmt.Errorf("key %s: %w", k.File, bad)))
	}
	return errs.Err()
}

// noteOverlaps notes the first key that begins so late that paths under the one before it may be in use when that ends.
func (r *Router) noteOverlaps(note func(error)) {
	i, overlap := keyring.ShortOverlap(keyring.Spans(r.Keys), clock())
	if i < 0 {
		return
	}
	for _, t := range r.schedule {
		if t.span == r.Keys[i].Span {
			note(t.Locate(keyring.FieldNotBefore, fmt.Errorf("key %s: it overlaps the one before it by %s only, and paths live %s: "+
				"packets on older paths are lost when that one ends", t.File, overlap, keyring.LifetimeText)))
			return
		}
	}
}
