// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Peers has the directories of the reference programs.
type Peers struct {
	// Module is the directory of the Go module that pins their versions. If it is
	// empty, nothing can be built, and the programs in Bin are used as they are.
	Module string
	// Bin is the directory of the built programs.
	Bin string
}

// peerProgram is a reference program and the package it is built from.
type peerProgram struct {
	name string
	pkg  string
	cgo  bool // whether it needs a C compiler, for SQLite
}

var peerPrograms = []peerProgram{
	{"router", "github.com/scionproto/scion/router/cmd/router", false},
	{"dispatcher", "github.com/scionproto/scion/dispatcher/cmd/dispatcher", false},
	{"scion", "github.com/scionproto/scion/scion/cmd/scion", false},
	{"scion-pki", "github.com/scionproto/scion/scion-pki/cmd/scion-pki", false},
	{"control", "github.com/scionproto/scion/control/cmd/control", true},
	{"daemon", "github.com/scionproto/scion/daemon/cmd/daemon", true},
}

// stampFile is a file in Bin that records what each program was built from.
const stampFile = ".built-from.json"

// DefaultPeers returns the directories for the running executable: the programs are
// in the directory peers beside it. The module is in ../peers of the executable's
// directory, or in ./peers.
func DefaultPeers() (Peers, error) {
	exe, err := os.Executable()
	if err != nil {
		return Peers{}, fmt.Errorf("find the running executable: %w", err)
	}
	dir := filepath.Dir(exe)
	p := Peers{Bin: filepath.Join(dir, "peers")}
	for _, module := range []string{filepath.Join(dir, "..", "peers"), "peers"} {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil {
			continue
		}
		if p.Module, err = filepath.Abs(module); err != nil {
			return Peers{}, fmt.Errorf("find the module of the reference programs: %w", err)
		}
		break
	}
	return p, nil
}

// BuildPeers builds the reference programs of DefaultPeers, and copies the table of
// prefixes beside them.
func BuildPeers(ctx context.Context, out io.Writer) error {
	p, err := DefaultPeers()
	if err != nil {
		return err
	}
	if err := p.Build(ctx, out); err != nil {
		return err
	}
	return p.BuildPrefixes(ctx, out)
}

// Build builds the programs that are missing or older than their module, and writes
// a line to out for each of them. It needs the go command, and gcc for two of the
// programs. Only one build at a time uses a directory; others wait.
func (p Peers) Build(ctx context.Context, out io.Writer) error {
	if p.Module == "" {
		if missing := p.missing(); len(missing) > 0 {
			return fmt.Errorf("reference programs %s are not in %s and their module is not found: run 'culvert lab build' in a checkout of culvert, or bin/culvert from one",
				strings.Join(missing, ", "), p.Bin)
		}
		return nil
	}
	unlock, err := p.lock()
	if err != nil {
		return err
	}
	defer unlock()
	want, err := digest(p.Module)
	if err != nil {
		return err
	}
	built := p.stamps()
	for i, prog := range peerPrograms {
		if built[prog.name] == want && p.has(prog.name) {
			continue
		}
		progress(out, "building %s (%d of %d)", prog.name, i+1, len(peerPrograms))
		start := time.Now()
		if err := p.build(ctx, prog); err != nil {
			return err
		}
		built[prog.name] = want
		if err := p.setStamps(built); err != nil {
			return err
		}
		progress(out, "built %s in %d s", prog.name, int(time.Since(start).Seconds()))
	}
	return nil
}

func (p Peers) build(ctx context.Context, prog peerProgram) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: no go command in PATH: install Go", prog.name)
	}
	cgo := "CGO_ENABLED=0"
	if prog.cgo {
		if _, err := exec.LookPath("gcc"); err != nil {
			return fmt.Errorf("build %s: its SQLite needs a C compiler: install gcc and libc6-dev", prog.name)
		}
		cgo = "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath",
		"-o", filepath.Join(p.Bin, prog.name), prog.pkg)
	cmd.Dir = p.Module
	// Flags and workspace of the caller must not apply to this build.
	cmd.Env = append(os.Environ(), cgo, "GOWORK=off", "GOFLAGS=")
	// The go command ends its compilers when it is interrupted, but not when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", prog.name, ctx.Err())
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("build %s in %s: %w: %s", prog.name, p.Module, err, lines[len(lines)-1])
	}
	return nil
}

// lock makes the directory of the programs if there is none, and locks it until
// unlock is called.
func (p Peers) lock() (unlock func() error, err error) {
	if err := os.MkdirAll(p.Bin, 0o755); err != nil {
		return nil, fmt.Errorf("build the reference programs: %w", err)
	}
	dir, err := os.Open(p.Bin)
	if err != nil {
		return nil, fmt.Errorf("build the reference programs: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, join(fmt.Errorf("lock %s: %w", p.Bin, err), dir.Close())
	}
	return dir.Close, nil
}

// digest returns a hash of a module's go.mod and go.sum, which determine all that
// is built from it.
func digest(module string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the module of the reference programs: %w", err)
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// stamps reads the stamp file. It returns an empty map if the file is missing or
// damaged, so that everything is built again.
func (p Peers) stamps() map[string]string {
	built := make(map[string]string)
	b, err := os.ReadFile(filepath.Join(p.Bin, stampFile))
	if err != nil || json.Unmarshal(b, &built) != nil {
		return make(map[string]string)
	}
	return built
}

func (p Peers) setStamps(built map[string]string) error {
	b, err := json.Marshal(built)
	if err != nil {
		return fmt.Errorf("encode %s: %w", stampFile, err)
	}
	if err := os.WriteFile(filepath.Join(p.Bin, stampFile), b, 0o644); err != nil {
		return fmt.Errorf("build the reference programs: %w", err)
	}
	return nil
}

func (p Peers) has(name string) bool {
	st, err := os.Stat(filepath.Join(p.Bin, name))
	if err != nil {
		return false
	}
	return st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0
}

func (p Peers) missing() []string {
	var missing []string
	for _, prog := range peerPrograms {
		if !p.has(prog.name) {
			missing = append(missing, prog.name)
		}
	}
	return missing
}
