// SPDX-License-Identifier: Apache-2.0

// Package support packs what is asked for when somebody needs help: the state of culvert and of its host, without secrets.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Options say what is packed.
type Options struct {
	// Culvert is the program whose verbs are called.
	Culvert string
	// ConfigDir has the configurations, with their drop-ins.
	ConfigDir string
	// SecretFiles are files with secrets besides those that configurations name. None is packed: they are read for what must not
	// be in any other part.
	SecretFiles []string
	// Now is the time in the archive.
	Now time.Time
}

// commandTime is how long a command may take, and most how many bytes of its output are kept, from its end.
const (
	commandTime = 30 * time.Second
	most        = 16 << 20
)

// part is a file of the archive.
type part struct {
	name string
	text string
	what string // in the README
}

// output is what a command says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	// said tells whether something is from its standard output: the rest is errors.
	said bool
}

// stream is the standard output of a command, or its standard error.
type stream struct {
	to       *output
	standard bool
}

// Write implements io.Writer.
func (s stream) Write(b []byte) (int, error) {
	s.to.mu.Lock()
	defer s.to.mu.Unlock()
	s.to.said = s.to.said || s.standard
	return s.to.text.Write(b)
}

// archive is what is packed so far.
type archive struct {
	o       Options
	parts   []part
	missing []string
	secrets []string
}

// Write packs everything into w, as a tar file in gzip. What cannot be had is named in the archive's README and returned.
func Write(ctx context.Context, w io.Writer, o Options) (missing []string, err error) {
	a := &archive{o: o}
	status := a.run(ctx, "status.json", o.Culvert, "status", "-j")
	running := configFiles(status)
	a.configs(running)
	for _, path := range o.SecretFiles {
		a.readSecret(path)
	}
	for _, verb := range []string{
		"version", "status -v", "route show", "filter list", "filter set list", "lb show", "lb flows --totals", "lb decap show",
		"key list",
	} {
		a.run(ctx, strings.ReplaceAll(strings.ReplaceAll(verb, " --", "-"), " ", "-")+".txt", append([]string{o.Culvert}, strings.Fields(verb)...)...)
	}
	for _, verb := range []string{"doctor", "check"} {
		a.look(ctx, verb, running)
	}
	for name, command := range map[string]string{
		"kernel.txt":      "uname -a",
		"links.txt":       "ip -s -d link",
		"addresses.txt":   "ip address",
		"rules.txt":       "ip rule",
		"neighbors.txt":   "ip neighbor",
		"unit.txt":        "systemctl status --no-pager --full culvert.service culvert@*.service",
		"log.txt":         "journalctl --no-pager -o short-iso-precise -n 20000 -u culvert.service -u culvert@*.service",
		"package.txt":     "dpkg-query -W culvert libpcap0.8* systemd",
		"interrupts.txt":  "cat /proc/interrupts",
		"memory.txt":      "cat /proc/meminfo",
		"unit-memory.txt": "cat /sys/fs/cgroup/system.slice/culvert.service/memory.current",
	} {
		a.run(ctx, name, strings.Fields(command)...)
	}
	return a.missing, a.write(w)
}

// look adds what a verb says of the configurations that processes have in force, or without any of the default one.
func (a *archive) look(ctx context.Context, verb string, running []string) {
	n := 0
	for _, file := range running {
		if verb == "check" && isRouters(file) {
			continue // it is none of culvert's
		}
		n++
		name := verb + ".txt"
		if n > 1 {
			name = fmt.Sprintf("%s-%d.txt", verb, n)
		}
		a.run(ctx, name, a.o.Culvert, verb, "-c", file)
	}
	if n == 0 {
		a.run(ctx, verb+".txt", a.o.Culvert, verb)
	}
}

// isRouters tells whether a file is the SCION router's own.
func isRouters(path string) bool {
	var file struct{ General map[string]any }
	b, err := os.ReadFile(path)
	return err == nil && toml.Unmarshal(b, &file) == nil && file.General != nil
}

// run adds the output of a command, also if it fails. An error of one line that is all it says is not worth a file: the README has it.
func (a *archive) run(ctx context.Context, name string, command ...string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	line := strings.Join(command, " ")
	if command[0] == a.o.Culvert {
		line = "culvert" + strings.TrimPrefix(line, command[0])
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_PAGER=cat")
	said := new(output)
	cmd.Stdout, cmd.Stderr = stream{said, true}, stream{said, false}
	err := cmd.Run()
	out := said.text.Bytes()
	if len(out) > most {
		out = out[len(out)-most:]
	}
	what := "'" + line + "'"
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		a.miss("%s: '%s' has not ended within %s", name, line, commandTime)
		what += ", which has not ended"
	case err != nil && !errors.As(err, &failed):
		a.miss("%s: '%s' does not run: %v", name, line, err)
		return ""
	case err != nil && len(out) == 0:
		a.miss("%s: '%s' says nothing: %v", name, line, err)
		return ""
	case err != nil && !said.said && bytes.Count(bytes.TrimSpace(out), []byte("\n")) == 0:
		a.miss("%s: '%s' fails: %s", name, line, bytes.TrimSpace(out))
		return ""
	case err != nil:
		what += fmt.Sprintf(", which fails: %v", err)
	}
	a.parts = append(a.parts, part{name, string(out), what})
	return string(out)
}

func (a *archive) miss(format string, args ...any) {
	a.missing = append(a.missing, fmt.Sprintf(format, args...))
}

// configFiles returns the configurations of running processes, from the JSON of 'culvert status'.
func configFiles(status string) (files []string) {
	var s struct {
		Routers []struct {
			Config struct {
				File string `json:"file"`
			} `json:"config"`
		} `json:"routers"`
	}
	_ = json.Unmarshal([]byte(status), &s) // without a status there are those of ConfigDir
	for _, r := range s.Routers {
		if r.Config.File != "" {
			files = append(files, r.Config.File)
		}
	}
	return files
}

// configs adds the configurations of ConfigDir and others, with drop-ins and the SCION router's files that they name.
func (a *archive) configs(running []string) {
	files, _ := filepath.Glob(filepath.Join(a.o.ConfigDir, "*.toml"))
	if len(files) == 0 {
		a.miss("configuration: no *.toml in %s that may be read", a.o.ConfigDir)
	}
	files = append(files, running...)
	for _, file := range slices.Clone(files) {
		drop, _ := filepath.Glob(filepath.Join(strings.TrimSuffix(file, ".toml")+".d", "*.toml"))
		files = append(files, drop...)
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		text := a.config(file)
		for _, other := range a.named(file, text) {
			a.config(other)
		}
	}
}

// config adds a configuration without its secrets, and returns it with them.
func (a *archive) config(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		a.miss("configuration: %v", err)
		return ""
	}
	text, secrets := blank(string(b))
	a.secrets = append(a.secrets, secrets...)
	a.parts = append(a.parts, part{filepath.Join("configuration", path), text, "its secrets are blanked"})
	return string(b)
}

// named returns the SCION router's files that a configuration names, and reads the secrets in the files that it names.
func (a *archive) named(path, text string) (files []string) {
	var tree map[string]any
	if toml.Unmarshal([]byte(text), &tree) != nil {
		return nil // 'culvert check' says what is wrong
	}
	at := func(file string) string {
		if filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(filepath.Dir(path), file)
	}
	var walk func(key string, value any)
	walk = func(key string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for k, sub := range v {
				walk(k, sub)
			}
		case []any:
			for _, sub := range v {
				walk(key, sub)
			}
		case string:
			if secretWord.MatchString(key) && fileWord.MatchString(key) {
				a.readSecret(at(v))
			}
		}
	}
	walk("", tree)
	if scion, ok := tree["scion"].(map[string]any); ok {
		if file, ok := scion["config"].(string); ok {
			files = append(files, at(file))
		}
		keys, _ := scion["key"].([]any)
		for _, k := range keys {
			if table, ok := k.(map[string]any); ok {
				if file, ok := table["file"].(string); ok {
					a.readSecret(at(file))
				}
			}
		}
	}
	return files
}

// readSecret notes what is in a file with a secret, which is not packed. One that cannot be read is in no other part either.
func (a *archive) readSecret(path string) {
	if b, err := os.ReadFile(path); err == nil {
		a.secrets = append(a.secrets, strings.TrimSpace(string(b)))
	}
}

// write writes the archive, README first.
func (a *archive) write(w io.Writer) error {
	slices.SortFunc(a.parts, func(x, y part) int { return strings.Compare(x.name, y.name) })
	var readme strings.Builder
	fmt.Fprintf(&readme, "What 'culvert support' has found at %s. Keys, passwords and seeds are left out or blanked, but it has\naddresses, rules and names: look through it before you send it.\n\n", a.o.Now.UTC().Format(time.RFC3339))
	for _, p := range a.parts {
		fmt.Fprintf(&readme, "%s: %s\n", p.name, p.what)
	}
	if len(a.missing) > 0 {
		readme.WriteString("\nWhat could not be had:\n\n")
	}
	for _, m := range a.missing {
		readme.WriteString(m + "\n")
	}
	zip := gzip.NewWriter(w)
	tape := tar.NewWriter(zip)
	for _, p := range append([]part{{name: "README", text: readme.String()}}, a.parts...) {
		text := []byte(without(p.text, a.secrets))
		h := &tar.Header{Name: filepath.Join("culvert-support", p.name), Mode: 0o600, Size: int64(len(text)), ModTime: a.o.Now}
		if err := tape.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tape, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return errors.Join(tape.Close(), zip.Close())
}

// File packs everything into a new file that only its owner may read.
func File(ctx context.Context, path string, o Options) (missing []string, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("packing %s: it is there already: remove it, or write another one with -o", path)
	}
	if err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	missing, err = Write(ctx, f, o)
	if err = errors.Join(err, f.Close(), ctx.Err()); err != nil {
		_ = os.Remove(path)
		return nil, fmt.Errorf("packing %s: %w", path, err)
	}
	return missing, nil
}

// Name is the default name of the archive.
func Name(now time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("culvert-support-%s-%s.tar.gz", host, now.UTC().Format("20060102T150405Z"))
}
