// SPDX-License-Identifier: Apache-2.0

//go:build example

package example_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/example"
	"culvert/internal/node"
	"culvert/internal/testbed"
)

// asNode is the variable of the environment with the file that this program is to carry out, in the place of its tests: a
// process is in one network namespace, and a test only with a thread.
const asNode = "CULVERT_EXAMPLE_FILE"

func TestMain(m *testing.M) {
	path := os.Getenv(asNode)
	if path == "" {
		testbed.Main(m)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	if err := node.Run(ctx, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is one that carries a file out.
type process struct {
	t    *testing.T
	path string // of the file
	cmd  *exec.Cmd
	log  testbed.Output
	end  chan struct{} // closed when it has ended
}

// patience is for an emulator that loads programs.
const patience = 4 * testbed.Patience

// eventually waits until something is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// serve carries a file with these tables out, and waits until all stages are ready.
func serve(t *testing.T, tables string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	must(t, os.WriteFile(path, []byte("interfaces = [\"west\", \"east\"]\n"+tables), 0o600))
	p := &process{t: t, path: path, cmd: exec.Command(os.Args[0]), end: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asNode+"="+path)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.end)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.end
		if t.Failed() {
			t.Logf("the process said: %s", p.log.String())
		}
	})
	p.awaitReady()
	return p
}

func (p *process) ended() bool {
	select {
	case <-p.end:
		return true
	default:
		return false
	}
}

func (p *process) awaitReady() {
	p.t.Helper()
	eventually(p.t, "all stages to be ready", func() bool {
		if p.ended() {
			p.t.Fatalf("the process has ended: %s", p.log.String())
		}
		inst, err := datapath.OpenHere("culvert")
		if inst == nil || err != nil {
			return false
		}
		defer inst.Close()
		states, known, err := inst.Stages()
		ready := make(map[string]bool)
		for _, s := range states {
			if s.State != datapath.StageReady {
				return false
			}
			ready[s.Stage] = true
		}
		return known && err == nil && ready[example.Name] && ready["route"]
	})
}

// stop ends the process. The data plane stays.
func (p *process) stop() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(unix.SIGTERM))
	eventually(p.t, "the process to end", p.ended)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(p.log.String(), "a stage is out") {
		p.t.Errorf("status %d: %s", code, p.log.String())
	}
}

// reload has the process read a file with other tables, and waits until they are in force.
func (p *process) reload(tables string) {
	p.t.Helper()
	before := strings.Count(p.log.String(), "configuration reloaded")
	must(p.t, os.WriteFile(p.path+"~", []byte("interfaces = [\"west\", \"east\"]\n"+tables), 0o600))
	must(p.t, os.Rename(p.path+"~", p.path))
	must(p.t, p.cmd.Process.Signal(unix.SIGHUP))
	eventually(p.t, "the file to be read again", func() bool {
		return strings.Count(p.log.String(), "configuration reloaded") > before
	})
}
