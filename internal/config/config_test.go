// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	path := write(t, "mode = \"generic\"\ninterfaces = [\"a\", \"b\"]\n[scion]\nconfig = \"br.toml\"\n")
	n, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if n.Mode != ModeGeneric || len(n.Interfaces) != 2 {
		t.Errorf("got %+v", n)
	}
	if want := filepath.Join(filepath.Dir(path), "br.toml"); n.SCION.Config != want {
		t.Errorf("scion.config is %s, want %s", n.SCION.Config, want)
	}
}

func TestModeDefaultsToNative(t *testing.T) {
	n, err := Load(write(t, "[scion]\nconfig = \"/etc/br.toml\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n.Mode != ModeNative || n.SCION.Config != "/etc/br.toml" {
		t.Errorf("got %+v %+v", n, n.SCION)
	}
}

func TestBadInputIsLocated(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"not TOML", "mode = \n", ":1:"},
		{"wrong type", "[scion]\nconfig = 3\n", ":2:10: want text in quotes, found integer"},
		{"unknown key", "[scion]\nconfig = \"x\"\nturbo = true\n", ":3:1: unknown key \"scion.turbo\""},
		{"unknown table", "[scion]\nconfig = \"x\"\n[warp]\n", "unknown key \"warp\""},
		{"bad mode", "mode = \"offload\"\n[scion]\nconfig = \"x\"\n", "mode = \"offload\": use"},
		{"no stage", "", "no stage is on"},
		{"no file", "[scion]\n", "scion.config is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(write(t, tt.text))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %q, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Load("/nonexistent/culvert.toml"); err == nil ||
		!strings.HasPrefix(err.Error(), "reading /nonexistent/culvert.toml: ") {
		t.Errorf("error is %v", err)
	}
}
