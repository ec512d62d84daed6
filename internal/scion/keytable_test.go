// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"culvert/internal/config"
	"culvert/internal/scion/keyring"
)

// setClock sets the time of the schedule for a test.
func setClock(t *testing.T, now time.Time) {
	clock = func() time.Time { return now }
	t.Cleanup(func() { clock = time.Now })
}

// keyFiles makes a directory with keys a.key to d.key, and c.key the same as a.key.
func keyFiles(t *testing.T) string {
	t.Helper()
	dir := copied(t, "testdata/v4")
	check(t, os.WriteFile(filepath.Join(dir, "br.toml"), fmt.Appendf(nil, "[general]\nid = \"br1\"\nconfig_dir = %q\n", dir), 0o600))
	for name, first := range map[string]byte{"a": 1, "b": 2, "c": 1, "d": 4} {
		key := [16]byte{first}
		check(t, os.WriteFile(filepath.Join(dir, name+".key"), []byte(base64.StdEncoding.EncodeToString(key[:])), 0o600))
	}
	check(t, os.WriteFile(filepath.Join(dir, "short.key"), []byte("MDEy"), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "open.key"), []byte("MDEy"), 0o644))
	check(t, os.Chmod(filepath.Join(dir, "open.key"), 0o644))
	return dir
}

// loadScheduled loads a file whose table [scion] has text behind its first key.
func loadScheduled(t *testing.T, dir, text string) (*Router, error) {
	t.Helper()
	path := filepath.Join(dir, "culvert.toml")
	check(t, os.WriteFile(path, []byte("[scion]\nconfig = \"br.toml\"\n"+text), 0o600))
	n, err := config.Load(path, []config.Part{{Name: "scion", New: func() config.Table { return new(Table) }}})
	if err != nil {
		return nil, err
	}
	table, _ := n.Tables["scion"].(*Table)
	return LoadTable(table)
}

func TestSchedule(t *testing.T) {
	setClock(t, time.Date(2026, 12, 1, 5, 0, 0, 0, time.UTC))
	dir := keyFiles(t)
	check(t, os.RemoveAll(filepath.Join(dir, "keys"))) // nothing reads them
	r, err := loadScheduled(t, dir, `
[[scion.key]]
file = "b.key"
not_before = 2026-12-01 05:00:00+01:00
[[scion.key]]
file = "a.key"
not_after = "2026-12-01T12:00:00.5Z"
`)
	check(t, err)
	if !r.Scheduled() || len(r.Keys) != 2 {
		t.Fatalf("keys %v", r.Keys)
	}
	for i, want := range []keyring.Span{
		{NotAfter: time.Date(2026, 12, 1, 12, 0, 0, 500_000_000, time.UTC)}, {NotBefore: time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC)},
	} {
		if r.Keys[i].Span != want {
			t.Errorf("key %d is valid %v, want %v", i, r.Keys[i].Span, want)
		}
	}
	if a := derive([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")); r.Keys[0].Secret != a.Secret || r.Keys[0].ID != a.ID {
		t.Errorf("the first key has ID %s, want %s", r.Keys[0].ID, a.ID)
	}
	var notes []error
	r.noteOverlaps(func(err error) { notes = append(notes, err) })
	if len(notes) != 0 {
		t.Errorf("notes %v, want none for 8 hours", notes)
	}
	r, err = loadScheduled(t, dir, "[[scion.key]]\nfile = \"b.key\"\nnot_before = 2026-12-01T11:00:00Z\n[[scion.key]]\nfile = \"a.key\"\nnot_after = 2026-12-01T12:00:00Z\n")
	check(t, err)
	r.noteOverlaps(func(err error) { notes = append(notes, err) })
	want := "culvert.toml:5:14: key " + dir + "/b.key: it overlaps the one before it by 1h0m0s only, and paths live 6h: packets on older paths are lost when that one ends"
	if len(notes) != 1 || !strings.HasSuffix(notes[0].Error(), want) {
		t.Errorf("notes %v, want one with %q", notes, want)
	}
}

// TestScheduleErrors has schedules that are refused, each with its position.
func TestScheduleErrors(t *testing.T) {
	setClock(t, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	dir := keyFiles(t)
	key := func(file, notBefore, notAfter string) string {
		text := "[[scion.key]]\nfile = \"" + file + ".key\"\n"
		if notBefore != "" {
			text += "not_before = " + notBefore + "\n"
		}
		if notAfter != "" {
			text += "not_after = " + notAfter + "\n"
		}
		return text
	}
	var many strings.Builder
	for i := range 17 {
		fmt.Fprintf(&many, "[[scion.key]]\nfile = \"%d.key\"\n", i)
	}
	for _, c := range []struct{ name, text, want string }{
		{"no file", "[[scion.key]]\nnot_before = 2026-12-01T00:00:00Z\n", ":3:3: file of the key is missing"},
		{"a file twice", key("a", "", "") + key("a", "", ""), ":6:8: key DIR/a.key is there twice"},
		{"a key twice", key("a", "", "") + key("c", "", ""), ":6:8: key DIR/c.key is the same as DIR/a.key: make a new one"},
		{"no such file", key("none", "", ""), ":4:8: key DIR/none.key: no such file or directory"},
		{"others may read it", key("open", "", ""), ":4:8: key DIR/open.key: others than its owner may use DIR/open.key (mode 0644): chmod 0600 DIR/open.key"},
		{"a short key", key("short", "", ""), ":4:8: key DIR/short.key: 3 bytes long: write 16 bytes in standard base64"},
		{"an unknown key", key("a", "", "") + "until = 3\n", ":5:1: "},
		{"no offset", key("a", "", "2026-12-05T00:00:00"), ":5:13: scion.key.not_after: 2026-12-05T00:00:00 has no offset from UTC: write 2026-12-05T00:00:00Z"},
		{"a date", key("a", "", "2026-12-05"), `:5:13: scion.key.not_after: 2026-12-05 is no time: write it as 2026-12-01T00:00:00Z`},
		{"no time", key("a", "", `"soon"`), `:5:13: scion.key.not_after: "soon" is no time: write it as 2026-12-01T00:00:00Z`},
		{"a number", key("a", "", "5"), ":5:13: scion.key.not_after: 5 is no time"},
		{"after 2262", key("a", "", "9999-12-31T23:59:59Z"), ":5:13: scion.key.not_after: 9999-12-31T23:59:59Z is after 2262"},
		{"before 1970", key("a", "1969-12-31T23:59:59Z", ""), ":5:14: scion.key.not_before: 1969-12-31T23:59:59Z is before 1970"},
		{"end before the beginning", key("a", "2026-12-05T00:00:00Z", "2026-12-04T00:00:00Z"), ":6:13: key DIR/a.key: not_after = 2026-12-04T00:00:00Z is not after"},
		{"a gap", key("a", "", "2026-12-05T00:00:00Z") + key("b", "2026-12-06T00:00:00Z", ""),
			":8:14: key DIR/b.key: no key would be valid from 2026-12-05T00:00:00Z until 2026-12-06T00:00:00Z"},
		{"no overlap", key("a", "", "2026-12-05T00:00:00Z") + key("b", "2026-12-05T00:00:00Z", ""), ":8:14: key DIR/b.key: this key begins at"},
		{"three at a time", key("a", "", "") + key("b", "2026-12-05T00:00:00Z", "") + key("d", "2026-12-06T00:00:00Z", ""), ":10:14: key DIR/d.key: 3 keys would be valid"},
		{"past keys only", key("a", "", "2026-11-29T00:00:00Z") + key("b", "2026-11-28T00:00:00Z", "2026-11-30T00:00:00Z"), ":9:13: key DIR/b.key: all keys have ended"},
		{"future keys only", key("a", "2026-12-02T00:00:00Z", ""), ":5:14: key DIR/a.key: no key is valid before 2026-12-02T00:00:00Z"},
		{"too many", many.String(), ":35:3: 17 keys: a schedule has at most 16"},
	} {
		_, err := loadScheduled(t, dir, c.text)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		got := strings.ReplaceAll(err.Error(), dir, "DIR")
		if !strings.HasPrefix(got, "DIR/culvert.toml"+c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s\nwant DIR/culvert.toml%s", c.name, got, c.want)
		}
	}
}

// TestKeysStay changes a key file after a configuration was read. That configuration keeps the key that it was read with, so that it
// can come back.
func TestKeysStay(t *testing.T) {
	dir := keyFiles(t)
	r, err := LoadTopologyOnly(filepath.Join(dir, "br.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.loadKeys(true); err != nil {
		t.Fatal(err)
	}
	before := r.Keys[0].ID
	if err := os.WriteFile(filepath.Join(dir, "keys", "master0.key"), []byte("AAECAwQFBgcICQoLDA0ODw=="), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.loadKeys(true); err != nil || r.Keys[0].ID != before {
		t.Errorf("key %s, was %s: %v", r.Keys[0].ID, before, err)
	}
	fresh, err := LoadTopologyOnly(r.Path)
	if err != nil || fresh.Keys[0].ID == before {
		t.Errorf("a configuration that is read now has the key of before: %v", err)
	}
}
