// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// some is the table of a stage, for tests.
type some struct {
	Words []string `toml:"words"`
	One   []struct {
		File string `toml:"file"`
		Position
	} `toml:"one"`
	Position
}

// Check implements Table.
func (s *some) Check(at Position) error {
	s.Position = at
	var errs Errors
	for i := range s.One {
		o := &s.One[i]
		o.Position = at.In("one[" + string(rune('0'+i)) + "]")
		if o.File == "bad" {
			errs.Add(o.Locate("file", os.ErrInvalid))
		}
		o.File = o.Relative("file", o.File)
	}
	return errs.Err()
}

func someParts() []Part { return []Part{{Name: "some", New: func() Table { return new(some) }}} }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const wholeCluster = `interfaces = ["a"]
[some]
[cluster]
name = "edge"
endpoints = ["https://192.0.2.1:2379"]
node = "n1"
roles = ["lb", "edge"]
tls = {ca = "ca.pem", cert = "/etc/c.pem", key = "k.pem"}
`

// TestCluster reads the table, alone and with the rest of the file.
func TestCluster(t *testing.T) {
	path := write(t, wholeCluster)
	alone, err := ReadCluster(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Load(path, someParts())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Cluster{alone, n.Cluster} {
		if c.Name != "edge" || c.Node != "n1" || c.TLS.CA != filepath.Join(filepath.Dir(path), "ca.pem") || c.TLS.Cert != "/etc/c.pem" || c.StateDir != DefaultClusterDir {
			t.Errorf("the table is %+v with tls %+v", c, c.TLS)
		}
	}
	if c, err := ReadCluster(write(t, "interfaces = [\"a\"]\n")); c != nil || err != nil {
		t.Errorf("a file without the table has %v, error %v", c, err)
	}
}

// TestClusterErrors wants positions in front of what is wrong with the table.
func TestClusterErrors(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`name = "edge"`, ``, `:3:2: [cluster] has no name`},
		{`name = "edge"`, `name = "ed ge"`, `:4:8: name: `},
		{`"n1"`, `"n/1"`, `:6:8: node: `},
		{`["lb", "edge"]`, `["lb", "lb"]`, `:7:16: roles names lb twice`},
		{`["lb", "edge"]`, `["l b"]`, `:7:10: roles: `},
		{`["https://192.0.2.1:2379"]`, `[]`, `[cluster] has no endpoints`},
		{`https://192.0.2.1:2379`, `192.0.2.1:2379`, `:5:14: endpoint "192.0.2.1:2379": write it as https://ADDRESS:PORT`},
		{`https://192.0.2.1:2379`, `http://192.0.2.1:2379`, `beside [cluster.tls]`},
		{`ca = "ca.pem", `, ``, `[cluster.tls] has no ca`},
		{`tls =`, `tsl =`, `unknown key "cluster.tsl"`},
		{`tls = {ca = "ca.pem", cert = "/etc/c.pem", key = "k.pem"}`, ``, `without [cluster.tls]`},
	} {
		_, err := Load(write(t, strings.Replace(wholeCluster, c.from, c.to, 1)), someParts())
		if err == nil {
			t.Errorf("%s in place of %s is taken", c.to, c.from)
			continue
		}
		found := false
		for _, one := range All(err) {
			found = found || strings.Contains(one.Error(), c.want)
		}
		if !found {
			t.Errorf("%s in place of %s: errors %q, want %q", c.to, c.from, All(err), c.want)
		}
	}
	text := strings.Replace(wholeCluster, `tls = {ca = "ca.pem", cert = "/etc/c.pem", key = "k.pem"}`, ``, 1)
	_, err := Load(write(t, strings.Replace(text, "https", "http", 1)), someParts())
	if err == nil || !strings.Contains(err.Error(), "is on another machine: use https") {
		t.Errorf("http to another machine: error %v", err)
	}
	if _, err := Load(write(t, strings.Replace(text, "https://192.0.2.1", "http://127.0.0.1", 1)), someParts()); err != nil {
		t.Errorf("http on loopback: error %v", err)
	}
}

// TestRemote merges documents of a cluster behind the file, with the same errors.
func TestRemote(t *testing.T) {
	path := write(t, wholeCluster)
	doc := func(name, text string) Remote { return Remote{Name: name, Text: []byte(text), Dir: "/state/sets"} }
	n, err := Load(path, someParts(), doc("etcd:all", "log_level = \"warn\"\n[[some.one]]\nfile = \"x\"\n"), doc("etcd:node/n1", "[[some.one]]\nfile = \"/y\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := n.Tables["some"].(*some)
	if len(s.One) != 2 || s.One[0].File != "/state/sets/x" || s.One[1].File != "/y" || n.LogLevel != "warn" {
		t.Errorf("merged: %+v, log_level %q", s.One, n.LogLevel)
	}
	if len(n.Files) != 1 || n.Files[0] != path {
		t.Errorf("documents of a cluster count as files: %v", n.Files)
	}
	if s.One[0].IsRemote("file") == false || n.IsRemote("interfaces") {
		t.Error("it is not told apart where keys are")
	}
	for _, c := range []struct{ text, want string }{
		{"[[some.one]]\nfile = \"bad\"\n", "etcd:role/edge:2:8: invalid argument"},
		{"log_level = \n", "etcd:role/edge:1:"},
		{"\x00\xff", "etcd:role/edge:1:1: "},
		{"interfaces = [\"b\"]\n", "etcd:role/edge:1:"},
		{"interfaces = [\"b\"]\n", "interfaces is set at " + path + ":1:"},
		{"[cluster]\nstate_dir = \"/x\"\n", "etcd:role/edge:1:2: [cluster] in a document of the cluster"},
		{"cluster.state_dir = \"/x\"\n", "etcd:role/edge:1:1: [cluster] in a document of the cluster"},
		{"[cluster.tls]\n", "etcd:role/edge:1:2: [cluster] in a document of the cluster"},
		{"wrong = 1\n", "etcd:role/edge:1:1: unknown key \"wrong\""},
	} {
		_, err := Load(path, someParts(), doc("etcd:role/edge", c.text))
		found := false
		for _, one := range All(err) {
			found = found || strings.Contains(one.Error(), c.want)
		}
		if !found {
			t.Errorf("document %q: errors %q, want %q", c.text, All(err), c.want)
		}
	}
}
