// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestMain calls Exec in a copy of the test binary for TestExec, since Exec
// replaces the process. It is the RTR cache of TestBGPSlowRTR too.
func TestMain(m *testing.M) {
	if os.Getenv(slowRTREnv) != "" {
		// The second argument follows -cache.
		fmt.Fprintln(os.Stderr, serveSlowRTR(os.Args[2]))
		os.Exit(1)
	}
	if name := os.Getenv("CULVERT_TEST_EXEC"); name != "" {
		l, err := Open(name)
		if err == nil {
			err = l.Exec(os.Args[1], os.Args[2:]...)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(m.Run())
}

// testName returns a name for a lab that no other run of the tests uses.
func testName(t *testing.T, suffix string) string {
	t.Helper()
	return fmt.Sprintf("t%d%s", os.Getpid(), suffix)
}

// up sets up a lab, which is taken down at the end of the test.
func up(t *testing.T, kind string, o Options) *Lab {
	t.Helper()
	l, err := Up(t.Context(), kind, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := Open(l.Name); errors.Is(err, errNoLab) {
			return
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// leftovers returns what a lab has left on the machine: namespaces, files,
// processes, and links in the host's namespace.
func leftovers(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{netnsPath("cv-" + name + "-*"), filepath.Join(stateDir, name+"*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	cwds, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, cwd := range cwds {
		dir, _ := os.Readlink(cwd)
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(cwd), "cmdline"))
		if strings.HasPrefix(dir, labDir(name)) || strings.Contains(string(args), labDir(name)+"/") {
			found = append(found, cwd+": "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	mac, _ := (&Lab{Name: name}).nextMACs()
	for _, link := range links {
		if strings.HasPrefix(link.Attrs().HardwareAddr.String(), mac[:5].String()) {
			found = append(found, "link "+link.Attrs().Name)
		}
	}
	return found
}

func wantNothingLeft(t *testing.T, name string) {
	t.Helper()
	for _, l := range leftovers(t, name) {
		t.Errorf("left behind: %s", l)
	}
}

// wantLogsLeft wants the error of a lab that failed to come up to say where its logs are, and these among them, or nothing left
// if there are none. Nothing may be left when Down has removed them.
func wantLogsLeft(t *testing.T, name string, err error, logs ...string) {
	t.Helper()
	dir := failedLogsDir(name)
	if says := err != nil && strings.Contains(err.Error(), dir); says != (len(logs) > 0) {
		t.Errorf("says where the logs are: %v: %v", says, err)
	}
	for _, log := range logs {
		if _, err := os.Stat(filepath.Join(dir, log)); err != nil {
			t.Error(err)
		}
	}
	if len(logs) > 0 {
		if left := leftovers(t, name); !slices.Equal(left, []string{dir}) {
			t.Errorf("left behind: %v, want %s", left, dir)
		}
		if err := Down(name); err != nil {
			t.Error(err)
		}
	}
	wantNothingLeft(t, name)
}

// cancelAt is a writer for progress that cancels a context at the first line with
// a text, and records all lines.
type cancelAt struct {
	text   string
	cancel context.CancelFunc
	lines  strings.Builder
	hit    bool
}

func (c *cancelAt) Write(b []byte) (int, error) {
	c.lines.Write(b)
	if strings.Contains(string(b), c.text) {
		c.hit = true
		c.cancel()
	}
	return len(b), nil
}

// testPeers builds the reference programs in the directory that 'make peers' uses.
func testPeers(t *testing.T) Peers {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	p := Peers{Module: filepath.Join(root, "peers"), Bin: filepath.Join(root, "bin", "peers")}
	if err := p.Build(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	return p
}
