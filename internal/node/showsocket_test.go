// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"culvert/internal/api"
	"culvert/internal/edit"
	"culvert/internal/host/unixsock"
)

// TestSocketPaths wants a path of its own for each socket, whatever data planes are called.
func TestSocketPaths(t *testing.T) {
	paths := make(map[string]string)
	for _, name := range []string{"x", "x.show", "x.show.show", "x@7", "x@7.show", "x.sock", "x/y", "..", "x%2Eshow", "x.show@7"} {
		for _, extension := range []string{unixsock.Extension, showExtension} {
			for _, path := range socketPaths(7, name, extension) {
				if before := paths[path]; before != "" {
					t.Errorf("%s is of %s and of %s%s", path, before, name, extension)
				}
				paths[path] = name + extension
				if strings.Count(path, "/") != 3 || strings.HasSuffix(path, showExtension) != (extension == showExtension) {
					t.Errorf("%s%s has the path %s", name, extension, path)
				}
			}
		}
	}
	if want := []string{"/run/culvert/edge.show.sock", "/run/culvert/edge@7.show.sock"}; !slices.Equal(socketPaths(7, "edge", showExtension), want) {
		t.Errorf("%q, want %q", socketPaths(7, "edge", showExtension), want)
	}
}

// TestShowKeys has a SCION router with two keys. Programs get their IDs and times, as 'culvert key list -j' prints them, and not
// the keys.
func TestShowKeys(t *testing.T) {
	dir, write := checkBed(t)
	writeRouter(dir, write, "192.0.2.1:50000", "192.0.2.2:50000")
	text, secrets := "[scion]\nconfig = \"br.toml\"\n", []string{}
	for i, times := range []string{"not_after = 2038-01-01T00:00:00Z", "not_before = 2037-12-01T00:00:00Z"} {
		key := [16]byte{byte(i + 1), 0xaa, 0xbb, 0xcc}
		secrets = append(secrets, base64.StdEncoding.EncodeToString(key[:]))
		write(string(rune('a'+i))+".key", secrets[i])
		text += "[[scion.key]]\nfile = \"" + string(rune('a'+i)) + ".key\"\n" + times + "\n"
	}
	if err := Attach(t.Context(), write("culvert.toml", text), nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = DetachAll(io.Discard) }()
	h := api.Handler(&api.Source{Name: "br1"})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/scion/keys", nil))
	var printed, want bytes.Buffer
	if err := edit.ListKeys("br1", true, &printed); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&want, printed.Bytes()); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusOK || w.Body.String() != want.String()+"\n" || strings.Count(want.String(), `"id":"`) != 2 {
		t.Errorf("%d %s, want %s", w.Code, w.Body, &want)
	}
	for _, path := range []string{"/v1/scion/keys", "/v1/status"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		for _, secret := range secrets {
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), secret[:8]) {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
}
