// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
)

// bystander is what is attached and pinned in a namespace. A command that is refused must not change it.
type bystander struct {
	t        *testing.T
	lab      *lab.Lab
	programs map[string]uint32
	pins     []string
}

// observe records what is attached and pinned in namespace rut.
func observe(t *testing.T, l *lab.Lab) *bystander {
	t.Helper()
	b := &bystander{t: t, lab: l}
	b.programs, b.pins = b.state()
	return b
}

func (b *bystander) state() (map[string]uint32, []string) {
	b.t.Helper()
	programs := map[string]uint32{}
	for _, iface := range []string{"to-a", "to-b"} {
		programs[iface] = xdpProgram(b.t, b.lab, "rut", iface)
	}
	return programs, pins(b.t, b.lab, "rut")
}

// refusal is a command that must fail.
type refusal struct {
	name   string
	args   []string
	status int    // the exit status
	says   string // a part of the one line on standard error
	change func(*syscall.SysProcAttr)
}

// refuse runs culvert, or another program if the first argument is a path. It wants the exit status, one line on standard
// error, and nothing changed.
func (b *bystander) refuse(t *testing.T, r refusal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	argv := r.args
	if !strings.HasPrefix(argv[0], "/") {
		argv = append([]string{program()}, argv...)
	}
	cmd, err := b.lab.Command(ctx, "rut", argv...)
	check(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if r.change != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		r.change(cmd.SysProcAttr)
	}
	err = cmd.Run()
	line := stderr.String()
	if got := exitStatus(err); got != r.status {
		t.Errorf("exit status %d (%v), want %d", got, err, r.status)
	}
	if strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "culvert: ") || !strings.Contains(line, r.says) {
		t.Errorf("standard error is not one line with %q: %q", r.says, line)
	}
	programs, pinned := b.state()
	if !maps.Equal(programs, b.programs) {
		t.Errorf("programs on the interfaces are %v, want %v", programs, b.programs)
	}
	if !slices.Equal(pinned, b.pins) {
		t.Errorf("pins are %q, want %q", pinned, b.pins)
	}
	t.Log(strings.TrimSpace(line))
}

// broken copies the configuration of an AS and replaces a piece of one of its files, or with old "" all of it. It returns the
// path of the copied router's file.
func broken(t *testing.T, as lab.AS, file, old, replacement string) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS(as.ConfigDir)))
	keys, err := filepath.Glob(filepath.Join(dir, "keys", "*.key"))
	check(t, err)
	for _, key := range keys {
		check(t, os.Chmod(key, 0o600)) // CopyFS lets others read it, which is refused
	}
	edit := func(file, old, replacement string) {
		path := filepath.Join(dir, file)
		b, err := os.ReadFile(path)
		check(t, err)
		if !strings.Contains(string(b), old) {
			t.Fatalf("%s has no %q", path, old)
		}
		text := strings.Replace(string(b), old, replacement, 1)
		if old == "" {
			text = replacement
		}
		check(t, os.WriteFile(path, []byte(text), 0o600))
	}
	toml := filepath.Base(as.RouterConfig)
	edit(toml, as.ConfigDir, dir)
	edit(file, old, replacement)
	return filepath.Join(dir, toml)
}

// nodeFor writes culvert's own file for a router's file and returns its path.
func nodeFor(t *testing.T, config string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	check(t, os.WriteFile(path, []byte("[scion]\nconfig = '"+config+"'\n"), 0o600))
	return path
}

// TestBadInput has files and commands that must be refused. Each gives one line and changes nothing.
func TestBadInput(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "bad"})
	as, err := l.AS("rut")
	check(t, err)
	b := observe(t, l)
	if b.programs["to-a"] != 0 || len(b.pins) > 0 {
		t.Fatalf("the lab is not fresh: %v, %q", b.programs, b.pins)
	}
	const topology = "topology.json"
	local := as.Links[0].Local.String()
	var all []refusal
	for _, bad := range []struct {
		name, config, says string
		runOnly            bool
	}{
		{name: "TOML that does not parse", config: broken(t, as, "br.toml", "[general]", "[general"), says: "br.toml"},
		{name: "TOML with an unknown key", config: broken(t, as, "br.toml", "[general]", "[general]\ncolour = 'red'"), says: "general.colour"},
		{name: "topology that does not parse", config: broken(t, as, topology, "", "{"), says: topology},
		{name: "unknown router ID", config: broken(t, as, "br.toml", as.RouterID, "br1-ff00_0_9-1"), says: "general.id"},
		{name: "key of the wrong size", config: broken(t, as, "keys/master0.key", "", "c2hvcnQ="), says: "master0.key"},
		{name: "key that is not base64", config: broken(t, as, "keys/master0.key", "", "???"), says: "master0.key"},
		{
			name: "address nobody has", config: broken(t, as, topology, local, "198.18.77.7:50000"), says: "interfaces.1.underlay.local",
			runOnly: true, // the other interface may do for 'culvert attach'
		},
	} {
		all = append(all, refusal{name: bad.name, args: []string{"scion", "run", "--config", bad.config}, status: 1, says: bad.says})
		if !bad.runOnly {
			attach := []string{"attach", "-c", nodeFor(t, bad.config), "to-a", "to-b"}
			all = append(all, refusal{name: bad.name + ", attach", args: attach, status: 1, says: bad.says})
		}
	}
	good, id := nodeFor(t, as.RouterConfig), as.RouterID
	bare := filepath.Join(t.TempDir(), "route.toml")
	check(t, os.WriteFile(bare, []byte("[route]\n"), 0o600))
	keyFile := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "key")
		check(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	key := keyFile("AAAAAAAAAAAAAAAAAAAAAA==")
	missing := filepath.Join(t.TempDir(), "none.toml")
	all = append(all, []refusal{
		{name: "no file", args: []string{"scion", "run", "--config", missing}, status: 1, says: missing},
		{name: "no node file", args: []string{"run", "-c", missing}, status: 1, says: missing},
		{name: "no interface", args: []string{"attach", "-c", good, "to-a", "to-c"}, status: 1, says: "to-c"},
		{name: "interface without an address", args: []string{"attach", "-c", good, "to-a", "lo"}, status: 1, says: "interface lo"},
		{name: "router's file for a node's", args: []string{"attach", "-c", as.RouterConfig, "to-a"}, status: 1, says: "br.toml looks like the reference router's own file"},
		{name: "detach from nothing", args: []string{"detach", "to-a"}, status: 1, says: "to-a"},
		{name: "key of no router", args: []string{"key", "add", "--on", "br9-ff00_0_999-9", "0", key}, status: 1, says: "no data plane br9-ff00_0_999-9"},
		{name: "key of 5 bytes", args: []string{"key", "add", "--on", id, "0", keyFile("c2hvcnQ=")}, status: 1, says: "16"},
		{name: "key not in base64", args: []string{"key", "add", "--on", id, "0", keyFile("???")}, status: 1, says: "base64"},
		{name: "key index", args: []string{"key", "add", "--on", id, "2", key}, status: 1, says: "0 or 1"},
		{name: "no config for run", args: []string{"run"}, status: 2, says: "-c FILE"},
		{name: "no interfaces", args: []string{"attach", "-c", bare}, status: 1, says: "interfaces is missing"},
		{name: "unknown flag", args: []string{"attach", "--fast"}, status: 2, says: "--fast"},
		{name: "unknown verb", args: []string{"dig"}, status: 2, says: "dig"},
		{name: "unknown verb of scion", args: []string{"scion", "walk"}, status: 2, says: "walk"},
		{name: "nothing to detach", args: []string{"detach"}, status: 2, says: "--all"},
		{name: "key on the command line", args: []string{"key", "add", "--on", id, "0", "AAAAAAAAAAAAAAAAAAAAAA=="}, status: 1, says: "not taken from the command line"},
		{name: "key without key", args: []string{"key", "add", "--on", id, "0"}, status: 1, says: "0 bytes"},
		{name: "key without index", args: []string{"key", "add", "--on", id}, status: 2, says: "arg"},
	}...)
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) { b.refuse(t, r) })
	}
}

// TestForeignProgram has an XDP program of somebody else on one interface. Culvert leaves that interface alone, and with it
// the other one.
func TestForeignProgram(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "for"})
	as, err := l.AS("rut")
	check(t, err)
	for _, iface := range []string{"to-a", "to-b"} {
		t.Run(iface, func(t *testing.T) {
			foreign, err := load.Listen(end(t, l, "rut", iface))
			check(t, err)
			defer foreign.Close()
			b := observe(t, l)
			b.refuse(t, refusal{args: []string{"scion", "run", "--config", as.RouterConfig}, status: 1, says: iface})
			b.refuse(t, refusal{args: []string{"attach", "-c", nodeFor(t, as.RouterConfig), "to-a", "to-b"}, status: 1, says: iface})
		})
	}
}

// TestSecondInstance starts culvert again on interfaces of a router that a process serves, and of one whose process was
// killed.
func TestSecondInstance(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "sec"})
	other := broken(t, b.as, "topology.json", b.as.RouterID, "br1-ff00_0_1-7")
	text, err := os.ReadFile(other)
	check(t, err)
	text = bytes.Replace(text, []byte(b.as.RouterID), []byte("br1-ff00_0_1-7"), 1)
	check(t, os.WriteFile(other, text, 0o600))
	runSame := []string{"scion", "run", "--config", b.config}
	attachSame := []string{"attach", "-c", nodeFor(t, b.config), "to-a", "to-b"}
	attachOther := []string{"attach", "-c", nodeFor(t, other), "to-a", "to-b"}

	p := b.serve(t)
	s := observe(t, b.lab)
	for _, r := range []refusal{
		{name: "the same router", args: runSame, status: 1, says: b.as.RouterID},
		{name: "the same, without a process", args: attachSame, status: 1, says: b.as.RouterID},
		{name: "another router", args: attachOther, status: 1, says: b.as.RouterID},
	} {
		t.Run(r.name, func(t *testing.T) { s.refuse(t, r) })
	}
	if !p.running() {
		t.Error("the first process has ended")
	}
	p.end(syscall.SIGKILL)
	t.Run("another router after kill", func(t *testing.T) {
		s.refuse(t, refusal{args: attachOther, status: 1, says: b.as.RouterID})
	})
}
