// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"culvert/internal/host/bpffs"
	"culvert/internal/host/trust"
)

func readSysctl(t *testing.T, key string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/" + key)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestDownLeavesNothing takes a lab down by its name. A process that the lab has
// not started runs in it, and culvert has pins for its namespaces.
func TestDownLeavesNothing(t *testing.T) {
	defer func(dir string) { pinDir = dir }(pinDir)
	pinDir = t.TempDir()
	name := testName(t, "d")
	l := up(t, "veth", Options{Name: name})
	if found := leftovers(t, name); len(found) < 5 {
		t.Fatalf("leftovers finds only %q of a lab that is up", found)
	}

	cmd, err := l.Command(t.Context(), "a", "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = l.Dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	inodes := l.inodes()
	if len(inodes) != 3 {
		t.Fatalf("inodes of the namespaces: %v", inodes)
	}
	for inode := range inodes {
		if err := os.MkdirAll(filepath.Join(pinDir, strconv.FormatUint(inode, 10), "router"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	foreign := filepath.Join(pinDir, "1")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	wantRunFiles := func(ns uint64, want int) {
		t.Helper()
		if found, err := runFiles(ns); err != nil || len(found) != want {
			t.Errorf("files about namespace %d in %s: %v, %v, want %d", ns, trust.RunDir, found, err, want)
		}
	}
	const foreignNS = 1
	defer func() { _ = removeRunFiles(foreignNS) }()
	for ns := range inodes {
		writeRunFiles(t, ns)
		wantRunFiles(ns, 3)
	}
	writeRunFiles(t, foreignNS)

	if err := Down(name); err != nil {
		t.Fatal(err)
	}
	<-ended
	wantNothingLeft(t, name)
	pins, err := filepath.Glob(filepath.Join(pinDir, "*"))
	if err != nil || len(pins) != 1 || pins[0] != foreign {
		t.Errorf("pins left: %v, %v, want only those of another namespace", pins, err)
	}
	for ns := range inodes {
		wantRunFiles(ns, 0)
	}
	wantRunFiles(foreignNS, 3)
	if _, err := Open(name); err == nil {
		t.Error("the lab can still be opened")
	}
}

// writeRunFiles writes files as killed processes leave them about a namespace.
func writeRunFiles(t *testing.T, ns uint64) {
	t.Helper()
	for _, format := range []string{"scion-%d-br1-ff00_0_1-1.lock", "stages-%d-br1.json", "bgp-%d-br1.json.123"} {
		if err := os.WriteFile(filepath.Join(trust.RunDir, fmt.Sprintf(format, ns)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTwoLabsAtOnce(t *testing.T) {
	one := up(t, "veth", Options{Name: testName(t, "one")})
	two := up(t, "veth", Options{Name: testName(t, "two"), Forward: true})
	if _, err := Up(t.Context(), "veth", Options{Name: one.Name}); err == nil {
		t.Error("two labs have one name")
	}
	labs, err := List()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, l := range labs {
		if (l.Name == one.Name || l.Name == two.Name) && l.Ready {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of the two labs are listed", found)
	}
	if err := one.Down(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, one.Name)
	if got := echo(t, two, net18(1, 2, false).Addr(), net18(2, 2, false).Addr(), 10); got != 10 {
		t.Errorf("after the first lab went down the second returned %d bytes of 10", got)
	}
}

// TestInterruptedUpLeavesNothing cancels the context of Up at each step.
func TestInterruptedUpLeavesNothing(t *testing.T) {
	for i, text := range []string{"namespaces", "rut/to-a", "rut/to-b", "router configuration"} {
		t.Run(text, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			name := testName(t, "k"+strconv.Itoa(i))
			out := &cancelAt{text: text, cancel: cancel}
			_, err := Up(ctx, "veth", Options{Name: name, Out: out})
			if !out.hit || !errors.Is(err, context.Canceled) {
				t.Errorf("Up returned %v, and wrote: %s", err, out.lines.String())
			}
			if want := "lab " + name + ": interrupted and removed"; err != nil && err.Error() != want {
				t.Errorf("Up returned %v, want %s", err, want)
			}
			if err == nil {
				_ = Down(name)
			}
			wantNothingLeft(t, name)
		})
	}
}

// TestUpOnIncompleteLab has the state of a lab whose Up was killed. The next Up says so.
func TestUpOnIncompleteLab(t *testing.T) {
	l := &Lab{Name: testName(t, "half"), Dir: labDir(testName(t, "half"))}
	if err := l.claim(); err != nil {
		t.Fatal(err)
	}
	_, err := Up(t.Context(), "veth", Options{Name: l.Name, Out: io.Discard})
	if want := "lab " + l.Name + " is incomplete: "; err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "remove it with 'culvert lab down "+l.Name+"'") {
		t.Errorf("Up returned %v, want %s", err, want)
	}
	l.Ready = true
	if err := l.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := Up(t.Context(), "veth", Options{Name: l.Name, Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "is up already") {
		t.Errorf("Up on a lab that is up: %v", err)
	}
	if err := Down(l.Name); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, l.Name)
}

// TestUpRemovesLogsOfFailure has logs of a lab that failed to come up, under the name of one that comes up.
func TestUpRemovesLogsOfFailure(t *testing.T) {
	name := testName(t, "again")
	if err := os.MkdirAll(failedLogsDir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	up(t, "veth", Options{Name: name})
	if _, err := os.Stat(failedLogsDir(name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the logs of the failure are there: %v", err)
	}
}

// TestUpRefusesForeignNamespace has a namespace that no lab has made, under the
// name of one. Up must neither use nor remove it.
func TestUpRefusesForeignNamespace(t *testing.T) {
	name := testName(t, "f")
	foreign := netnsName(name, "a")
	if err := createNamespace(foreign); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := deleteNamespace(foreign); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Up(t.Context(), "veth", Options{Name: name}); err == nil || !strings.Contains(err.Error(), foreign) {
		t.Errorf("Up returned %v", err)
	}
	if got := leftovers(t, name); len(got) != 1 || got[0] != netnsPath(foreign) {
		t.Errorf("left: %v, want only the foreign namespace", got)
	}
}

func TestExec(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "e")})
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(os.Environ(), "CULVERT_TEST_EXEC="+l.Name)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("a", "cat", "/proc/net/dev")
	if err != nil || !strings.Contains(out, "to-rut") || strings.Contains(out, "to-a") {
		t.Errorf("not in a: %v, %s", err, out)
	}
	if out, err = run("a", "ls", "/sys/class/net"); err != nil || !strings.Contains(out, "to-rut") || strings.Contains(out, "to-a") {
		t.Errorf("/sys is not a's: %v, %s", err, out)
	}
	host, err := exec.Command("stat", "-c", "%d %i", bpffs.Path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = run("a", "stat", "-c", "%d %i", bpffs.Path); err != nil || out != string(host) {
		t.Errorf("the pins are not the host's: %v, %s, want %s", err, out, host)
	}
	if mounts, err := os.ReadFile("/proc/mounts"); err != nil || strings.Count(string(mounts), " /sys ") > 1 {
		t.Errorf("mounted on the host: %v, %s", err, mounts)
	}
	var status *exec.ExitError
	if _, err = run("a", "sh", "-c", "exit 7"); !errors.As(err, &status) || status.ExitCode() != 7 {
		t.Errorf("exit status: %v", err)
	}
	if out, err = run("nowhere", "true"); err == nil || !strings.Contains(out, "rut, a, b") {
		t.Errorf("an unknown namespace: %v, %s", err, out)
	}
	for _, command := range []string{"no-such-command", "/nowhere/command"} {
		err := l.Exec("a", command)
		if !errors.Is(err, ErrNoCommand) || !strings.Contains(err.Error(), command) {
			t.Errorf("an unknown command: %v", err)
		}
	}
}

func TestCommandRunsInNamespace(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "r")})
	out, err := l.Run(t.Context(), "rut", "cat", "/proc/net/dev")
	if err != nil || !strings.Contains(string(out), "to-a") || !strings.Contains(string(out), "to-b") {
		t.Errorf("not in rut: %v, %s", err, out)
	}
	if _, err := l.Run(t.Context(), "rut", "sh", "-c", "echo broken; exit 1"); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a failing command: %v", err)
	}
}

func TestWriteList(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "l")})
	var text, asJSON strings.Builder
	if err := errors.Join(WriteList(&text, false), WriteList(&asJSON, true)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), l.Name) || !strings.Contains(text.String(), netnsName(l.Name, "rut")) {
		t.Errorf("list shows %s", text.String())
	}
	var labs []struct {
		Name       string
		Ready      bool
		Namespaces []Namespace
		Processes  []Process
	}
	if err := json.Unmarshal([]byte(asJSON.String()), &labs); err != nil {
		t.Fatal(err)
	}
	for _, got := range labs {
		if got.Name == l.Name && got.Ready && len(got.Namespaces) == 3 && got.Processes != nil {
			return
		}
	}
	t.Errorf("list -j shows %s", asJSON.String())
}

func TestWrongOptions(t *testing.T) {
	for want, tc := range map[string]struct {
		kind string
		o    Options
	}{
		"no topology":  {"ring", Options{}},
		"lab name":     {"veth", Options{Name: "../x"}},
		"MTU":          {"veth", Options{MTU: 68}},
		"queues":       {"veth", Options{Queues: -1}},
		"for scion3":   {"veth", Options{SegmentSwitch: true}},
		"are for veth": {"scion3", Options{Forward: true}},
		"no router":    {"scion3", Options{Routers: map[string]Router{"as1": "quagga"}}},
		"no AS":        {"scion3", Options{Routers: map[string]Router{"as9": Culvert}}},
		"negative":     {"scion3", Options{BFD: -1}},
		"for bgp":      {"veth", Options{Plain: true}},
		"are for bgp":  {"scion3", Options{Routes: Routes{Limited: true}}},
		"always":       {"bgp", Options{Forward: true}},
		"runs culvert": {"bgp", Options{Routers: map[string]Router{"rut": Reference}}},
		"choose 0 to":  {"bgp", Options{Routes: Routes{Limited: true, V6: maxRoutes + 1}}},
	} {
		if _, err := Up(t.Context(), tc.kind, tc.o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %+v: %v, want an error with %q", tc.kind, tc.o, err, want)
		}
	}
	if _, err := Open(".."); !errors.Is(err, ErrOptions) {
		t.Errorf("open a bad name: %v", err)
	}
	if err := Down(testName(t, "never")); err == nil || !strings.Contains(err.Error(), "lab list") {
		t.Errorf("down of an unknown lab: %v", err)
	}
}

func TestParseCulvert(t *testing.T) {
	for list, want := range map[string][3]Router{
		"as2":     {Reference, Culvert, Reference},
		"as1,as3": {Culvert, Reference, Culvert},
		"all":     {Culvert, Culvert, Culvert},
		"none":    {Reference, Reference, Reference},
	} {
		got, err := ParseCulvert("scion3", list)
		if err != nil || [3]Router{got["as1"], got["as2"], got["as3"]} != want {
			t.Errorf("%s: %v, %v", list, got, err)
		}
	}
	for list, want := range map[string]Router{"rut": Culvert, "all": Culvert, "none": Linux} {
		if got, err := ParseCulvert("bgp", list); err != nil || len(got) != 1 || got["rut"] != want {
			t.Errorf("bgp, %s: %v, %v", list, got, err)
		}
	}
	if got, err := ParseCulvert("bgp", "as2"); !errors.Is(err, ErrOptions) {
		t.Errorf("bgp, as2: %v, %v", got, err)
	}
	for _, list := range []string{"", "as4", "as1,", "all,as1"} {
		if got, err := ParseCulvert("scion3", list); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}
