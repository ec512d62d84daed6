// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/base64"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/edit"
)

// TestAttachSchedule attaches a SCION router with a schedule of three keys and no process: two of them are loaded, and keys by hand
// are refused.
func TestAttachSchedule(t *testing.T) {
	dir, write := checkBed(t)
	writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	text := "[scion]\nconfig = \"br.toml\"\n"
	for i, times := range []string{"not_after = 2038-01-01T00:00:00Z", "not_before = 2037-12-01T00:00:00Z\nnot_after = 2038-06-01T00:00:00Z", "not_before = 2038-05-01T00:00:00Z"} {
		key := [16]byte{byte(i + 1)}
		file := filepath.Base(write(string(rune('a'+i))+".key", base64.StdEncoding.EncodeToString(key[:])))
		text += "[[scion.key]]\nfile = \"" + file + "\"\n" + times + "\n"
	}
	var out bytes.Buffer
	if err := Attach(t.Context(), write("culvert.toml", text), nil, &out); err != nil {
		t.Fatal(err)
	}
	if want := ", valid from 2038-05-01T00:00:00Z on, is not loaded yet: attach again once another has ended"; !strings.Contains(out.String(), want) {
		t.Errorf("attach says %q, want %q", out.String(), want)
	}
	out.Reset()
	if err := edit.ListKeys("br1", false, &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^key  id [0-9a-f]{16}  current  until 2038-01-01T00:00:00Z
key  id [0-9a-f]{16}  next     from 2037-12-01T00:00:00Z  until 2038-06-01T00:00:00Z
key  id [0-9a-f]{16}  next     from 2038-05-01T00:00:00Z  not loaded
next key in [0-9]+d[0-9]+h
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("key list:\n%s", out.String())
	}
	key, to := [16]byte{0xaa}, ChangeOutput{Out: &out}
	for what, err := range map[string]error{
		"add": Change(t.Context(), "br1", edit.NewKey(1, key), to), "del": Change(t.Context(), "br1", &edit.KeyDel{Index: 1}, to),
		"del --force": Change(t.Context(), "br1", &edit.KeyDel{Index: 1, Force: true}, to),
	} {
		if err == nil || !strings.Contains(err.Error(), "the keys of router br1 follow the schedule in its file") {
			t.Errorf("key %s: %v", what, err)
		}
	}
	if err := Change(t.Context(), "br1", &edit.KeyDel{Force: true}, to); err == nil || !strings.HasSuffix(err.Error(), " out of [[scion.key]] there, and attach again or start the process") {
		t.Errorf("key del --force: %v", err)
	}
	all, err := datapath.ListHere()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d data planes, %v", len(all), err)
	}
	defer all[0].Close()
	var o doctor.Options
	addKeys(&o, all[0])
	if len(o.Keys) != 1 || len(o.Keys[0].Keys) != 3 || o.Keys[0].Keys[2].Loaded || !o.Keys[0].Keys[1].Loaded || o.Keys[0].Router != "br1" {
		t.Errorf("doctor has %+v", o.Keys)
	}
}
