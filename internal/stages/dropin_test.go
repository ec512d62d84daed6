// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"culvert/internal/config"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb/lbstage"
)

// writeDropIns writes culvert.toml and the files of culvert.d, by name, and returns the path of the first.
func writeDropIns(t *testing.T, main string, dropIns map[string]string) string {
	t.Helper()
	path := write(t, main)
	dir := strings.TrimSuffix(path, ".toml") + ".d"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range dropIns {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestDropIns adds keys to a table, tables to arrays and a stage, in the order of the names.
func TestDropIns(t *testing.T) {
	path := writeDropIns(t, "interfaces = [\"a\"]\n[lb]\nvips = 7\n[[filter.rule]]\nname = \"first\"\naction = \"count\"\n", map[string]string{
		"20-rules.toml": "[[filter.rule]]\nname = \"third\"\naction = \"count\"\nprogram = \"sub/x\"\n",
		"10-rules.toml": "[filter]\nrule = [{name = \"second\", action = \"count\"}]\n[lb]\nbackends = 9\n" + lbVIP + lbBackend + "[lb.vip.check]\ntype = \"tcp\"\n",
		"30-vip.toml":   "metrics = \"127.0.0.1:9441\"\n" + lbVIP + lbBackend + lbBackend,
		"40-route.toml": "[route]\nmirror = false\n[workers]\n",
		"50-cpus.toml":  "workers.cpus = [0]\n",
		"60-null.toml":  "",
		"README":        "not TOML",
		".60.toml":      "not TOML either",
	})
	n, err := loadAgain(t, path)
	if err != nil {
		t.Fatal(err)
	}
	rules := table[*filterstage.Table](n, "filter").Rules
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if want := []string{"first", "second", "third"}; !reflect.DeepEqual(names, want) {
		t.Errorf("rules %v, want %v", names, want)
	}
	if want := strings.TrimSuffix(path, ".toml") + ".d/sub/x"; rules[2].Program != want {
		t.Errorf("a path in a drop-in is %s, want %s", rules[2].Program, want)
	}
	b := table[*lbstage.Table](n, "lb")
	if b.VIPs != 7 || b.Backends != 9 || len(b.VIP) != 2 || len(b.VIP[0].Backend) != 1 || len(b.VIP[1].Backend) != 2 || b.VIP[0].Check == nil || b.VIP[1].Check != nil {
		t.Errorf("[lb] is %+v", b)
	}
	if n.Metrics != "127.0.0.1:9441" || n.Mode != config.ModeNative || ipRouter(n).MirrorOn() || !reflect.DeepEqual(n.Workers.CPUNumbers(), []int{0}) {
		t.Errorf("got %+v", n)
	}
	if len(n.Files) != 7 || filepath.Base(n.Files[1]) != "10-rules.toml" || filepath.Base(n.Files[6]) != "60-null.toml" {
		t.Errorf("read %v", n.Files)
	}
}

// loadAgain loads the file twice and wants the same, since the tables of arrays are added.
func loadAgain(t *testing.T, path string) (*config.Node, error) {
	t.Helper()
	n, err := Load(path)
	again, _ := Load(path)
	if err == nil && len(again.Tables) != len(n.Tables) {
		t.Errorf("read again, it is %+v, not %+v", again, n)
	}
	return n, err
}

// TestDropInErrors wants the position in the file that is wrong, and all errors.
func TestDropInErrors(t *testing.T) {
	const main = "interfaces = [\"a\"]\nmode = \"native\"\n[filter]\n[[filter.rule]]\nname = \"x\"\naction = \"drop\"\n"
	for _, tt := range []struct {
		name, main string
		dropIns    map[string]string
		want       []string // one for each error; DIR is the directory
	}{
		{"not TOML", main, map[string]string{"a.toml": "mode =\n", "b.toml": "[filter\n"}, []string{
			"DIR/culvert.d/a.toml:1:7: ", "DIR/culvert.d/b.toml:1:8: "}},
		{"unknown keys", main, map[string]string{"a.toml": "\n[filter]\nturbo = 1\nspeed = 2\n"}, []string{
			"DIR/culvert.d/a.toml:3:1: unknown key \"filter.turbo\"", "DIR/culvert.d/a.toml:4:1: unknown key \"filter.speed\""}},
		{"a key twice", main, map[string]string{"a.toml": "mode = \"generic\"\ninterfaces = [\"b\"]\n", "b.toml": "name = \"n\"\n", "c.toml": "\nname = \"n\"\n"}, []string{
			"DIR/culvert.d/a.toml:1:8: mode is set at DIR/culvert.toml:2:8 already: set it in one file",
			"DIR/culvert.d/a.toml:2:1: interfaces is set at DIR/culvert.toml:1:1 already",
			"DIR/culvert.d/c.toml:2:8: name is set at DIR/culvert.d/b.toml:1:8 already"}},
		{"a key twice, once inline", main + "[workers]\ncpus = [0]\n", map[string]string{"a.toml": "workers = {queue = 7, cpus = [0]}\n"}, []string{
			"DIR/culvert.d/a.toml:1:23: workers.cpus is set at DIR/culvert.toml:8:1 already"}},
		{"second rules", main, map[string]string{
			"a.toml": "[[filter.rule]]\nname = \"y\"\naction = \"count\"\n[[filter.rule]]\nname = \"x\"\naction = \"count\"\n",
			"b.toml": "[[filter.rule]]\naction = \"count\"\nname = \"y\"\n[[filter.rule]]\nname = \"z\"\n"}, []string{
			"DIR/culvert.d/a.toml:5:8: a second rule x", "DIR/culvert.d/b.toml:3:8: a second rule y", "DIR/culvert.d/b.toml:4:3: rule z: action is missing"}},
		{"a backend of another file's VIP", lbHead + lbVIP, map[string]string{"a.toml": lbBackend}, []string{
			"DIR/culvert.d/a.toml:1:3: there is no [[lb.vip]] in front of it in this file"}},
		{"missing and wrong values", "mode = \"x\"\nmissing = \"y\"\n[route]\n", map[string]string{"a.toml": "[workers]\ncpus = [4095]\n"}, []string{
			"DIR/culvert.toml:1:8: mode = \"x\": use", "DIR/culvert.toml:2:11: missing = \"y\": use", "DIR/culvert.d/a.toml:2:1: workers.cpus: CPU 4095",
			"DIR/culvert.toml: interfaces is missing"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeDropIns(t, tt.main, tt.dropIns)
			_, err := Load(path)
			all := config.All(err)
			if len(all) != len(tt.want) {
				t.Errorf("%d errors, want %d: %q", len(all), len(tt.want), all)
			}
			for _, want := range tt.want {
				found := false
				for _, e := range all {
					text := strings.ReplaceAll(e.Error(), filepath.Dir(path), "DIR")
					found = found || strings.HasPrefix(text, want)
				}
				if !found {
					t.Errorf("no error %q in %q", want, all)
				}
			}
		})
	}
}

// TestUnreadDropIns has drop-ins that cannot be read. None of them is left out in silence.
func TestUnreadDropIns(t *testing.T) {
	const main = "interfaces = [\"a\"]\n[filter]\n"
	path := writeDropIns(t, main, map[string]string{"b.toml": ""})
	dir := strings.TrimSuffix(path, ".toml") + ".d"
	if err := os.Symlink("nothing", filepath.Join(dir, "a.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "c.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	all := config.All(err)
	if len(all) != 2 || all[0].Error() != "reading "+dir+"/a.toml: no such file or directory" || all[1].Error() != "reading "+dir+"/c.toml: is a directory" {
		t.Errorf("errors %q", all)
	}
	path = write(t, main)
	dir = strings.TrimSuffix(path, ".toml") + ".d"
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || err.Error() != "reading "+dir+": not a directory" {
		t.Errorf("error %v", err)
	}
}

// TestFileWithoutDropIns has a file whose name does not say where its drop-ins are.
func TestFileWithoutDropIns(t *testing.T) {
	path := writeDropIns(t, "", map[string]string{"a.toml": "[filter\n"})
	other := filepath.Join(filepath.Dir(path), "culvert")
	if err := os.WriteFile(other, []byte("interfaces = [\"a\"]\n[filter]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(other); err != nil {
		t.Error(err)
	}
	if own, err := IsNode(path); !own || err != nil {
		t.Errorf("IsNode of a file that has nothing but drop-ins: %t, %v", own, err)
	}
}

// TestInstalledFile has drop-ins complete the file that the package installs.
func TestInstalledFile(t *testing.T) {
	installed, err := os.ReadFile("../../dist/culvert.toml")
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, string(installed))
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "no stage is on") {
		t.Errorf("by itself: %v", err)
	}
	if own, err := IsNode(path); !own || err != nil {
		t.Errorf("IsNode: %t, %v", own, err)
	}
	n, err := Load(writeDropIns(t, string(installed), map[string]string{
		"10-interfaces.toml": "interfaces = [\"eth1\"]\n", "20-route.toml": "[route]\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(n.Interfaces, []string{"eth1"}) {
		t.Errorf("interfaces %q", n.Interfaces)
	}
}
