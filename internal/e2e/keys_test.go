// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/scionproto/scion/router/control"

	"culvert/internal/lab"
)

func TestKeyRotationUnderLoad(t *testing.T) {
	t.Run("with the old slow path", func(t *testing.T) { rotateKey(t, "kr", false) })
	t.Run("with a restart in between", func(t *testing.T) { rotateKey(t, "kr2", true) })
}

// rotateKey replaces the forwarding key while packets with hop fields of both keys flow. While both keys are loaded, packets
// of both are forwarded. After the old key is removed, its packets are not forwarded any more, not by the slow path either,
// and the others lose nothing. A restart that gives the slow path the new key changes none of that.
func rotateKey(t *testing.T, name string, restart bool) {
	b := newBetween(t, lab.Options{Name: name})
	const step = 200
	master := []byte("new master key..")
	newKey := base64.StdEncoding.EncodeToString(control.DeriveHFMacKey(master))
	p := b.serve(t)
	old, fresh := b.stream(t, "", 0), b.stream(t, newKey, numbers)
	fresh.on.Store(false)
	load := startLoad(t, b.from, old, fresh)
	load.wait(step)

	id := b.as.RouterID
	keyFile := filepath.Join(t.TempDir(), "new.key")
	check(t, os.WriteFile(keyFile, []byte(newKey+"\n"), 0o600))
	if out, err := b.lab.Run(t.Context(), "rut", program(), "key", "add", "--on", id, "0", keyFile); exitStatus(err) != 1 {
		t.Errorf("a key was put in the place of another: exit status %d: %s", exitStatus(err), out)
	}
	culvert(t, b.lab, "rut", "key", "add", "--on", id, "1", keyFile)
	fresh.on.Store(true)
	load.wait(step)
	if list := culvert(t, b.lab, "rut", "key", "list", "--on", id); strings.Count(list, "\n") != 2 {
		t.Errorf("key list shows %q, want two keys", list)
	}

	if restart {
		path := filepath.Join(b.as.Keys, "master0.key")
		check(t, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(master)+"\n"), 0o600))
		p.end(syscall.SIGTERM)
		load.wait(step)
		b.serve(t)
		load.wait(step)
	}
	load.pause(old)
	valid := old.sent.Load()
	remove := []string{program(), "key", "del", "--on", id, "0"}
	if !restart { // the process has the old key still
		if out, err := b.lab.Run(t.Context(), "rut", remove...); exitStatus(err) != 1 || !strings.Contains(string(out), "--force") {
			t.Errorf("the process's own key was removed: exit status %d: %s", exitStatus(err), out)
		}
		remove = append(remove, "--force")
	}
	if out := culvert(t, b.lab, "rut", remove[1:]...); strings.Contains(out, "are dropped until") == restart {
		t.Errorf("key del says %q", out)
	}
	status := culvert(t, b.lab, "rut", "status", "--on", id)
	if strings.Contains(status, "the process's own key is not loaded") == restart {
		t.Errorf("status says\n%s", status)
	}
	load.wait(step)
	before := count(t, plane(t, b.lab, "rut"), "to-a")
	old.on.Store(true)
	load.wait(step)
	load.stop()

	settled(t, b.sink)
	arrivals := old.arrivals(t, b.sink)
	wantOnce(t, "old key", arrivals[:valid])
	wantOnce(t, "new key", fresh.arrivals(t, b.sink))
	for i, n := range arrivals[valid:] {
		if n != 0 {
			t.Errorf("number %d with the removed key was forwarded", int(valid)+i)
			break
		}
	}
	moved := count(t, plane(t, b.lab, "rut"), "to-a").since(before)
	refused := moved["punt scion-mac"] + moved["limited scion-mac"]
	if want := old.sent.Load() - valid; refused != want {
		t.Errorf("%d packets refused for their MAC, want %d: %v", refused, want, moved)
	}
	t.Logf("%d packets under the old key, %d refused, %d under the new", valid, refused, fresh.sent.Load())
}
