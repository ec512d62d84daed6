// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Cmd is an exec.Cmd that starts inside a namespace of a lab.
type Cmd struct {
	*exec.Cmd

	lab *Lab
	ns  string
}

// Command returns a command that runs a program in a namespace. A program name
// without a slash is looked up among the reference programs, beside culvert and in
// PATH, in this order. The environment has the address of the AS's daemon, so that
// the scion tools work without options. The program is killed when ctx ends.
func (l *Lab) Command(ctx context.Context, ns string, argv ...string) (*Cmd, error) {
	if _, err := l.Namespace(ns); err != nil {
		return nil, err
	}
	path, err := l.lookPath(argv)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = l.environ(ns)
	return &Cmd{Cmd: cmd, lab: l, ns: ns}, nil
}

// Start starts the command in its namespace, as exec.Cmd.Start does.
func (c *Cmd) Start() error { return c.lab.Do(c.ns, c.Cmd.Start) }

// Run starts the command in its namespace and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command in its namespace and returns its standard output.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// CombinedOutput runs the command in its namespace and returns what it wrote on
// standard output and standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// Run runs a program in a namespace and returns its output, standard error
// included. The error quotes the last line of it.
func (l *Lab) Run(ctx context.Context, ns string, argv ...string) ([]byte, error) {
	cmd, err := l.Command(ctx, ns, argv...)
	if err != nil {
		return nil, err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return out, fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), ns, err, lines[len(lines)-1])
	}
	return out, nil
}

// ErrNoCommand is the error for a program that is neither among the lab's nor in PATH.
var ErrNoCommand = errors.New("no such command: give a path, or a name that is in PATH")

// Exec replaces the calling process with a program in a namespace. So the program
// has the terminal, and the caller sees its signals and exit status. Exec returns
// only on an error.
func (l *Lab) Exec(ns string, argv ...string) error {
	if err := needRoot(); err != nil {
		return err
	}
	path, err := l.lookPath(argv)
	if err != nil {
		return err
	}
	return l.Do(ns, func() error {
		if err := mountOwnSys(); err != nil {
			return err
		}
		return fmt.Errorf("run %s: %w", path, syscall.Exec(path, argv, l.environ(ns)))
	})
}

// searchPath returns the directories in which commands are looked up before PATH.
func (l *Lab) searchPath() []string {
	return []string{l.Peers, filepath.Dir(l.Culvert)}
}

func (l *Lab) lookPath(argv []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", fmt.Errorf("no command given")
	}
	if !strings.Contains(argv[0], "/") {
		for _, dir := range l.searchPath() {
			if path, err := exec.LookPath(filepath.Join(dir, argv[0])); err == nil {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %w", argv[0], ErrNoCommand)
	case err != nil:
		return "", fmt.Errorf("find the command: %w", err)
	}
	return path, nil
}

// environ returns this process's environment with the search path in front of
// PATH, and with the address of the AS's daemon for the scion tools.
func (l *Lab) environ(ns string) []string {
	set := map[string]string{
		"PATH": strings.Join(append(l.searchPath(), os.Getenv("PATH")), string(os.PathListSeparator)),
	}
	for _, as := range l.ases() {
		if as.Daemon != "" && (as.NS == ns || as.HostNS == ns) {
			set["SCION_DAEMON"] = as.Daemon
		}
	}
	// Each name must occur once: a program reads the first of several.
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if _, ours := set[name]; !ours {
			env = append(env, kv)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}
