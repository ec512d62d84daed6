// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/testbed"
)

// checkFiles writes culvert.toml and drop-ins below a directory that everybody may enter, and returns the path of the first.
func checkFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "culvert-check-")
	must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(os.Chmod(dir, 0o755))
	must(os.Mkdir(filepath.Join(dir, "culvert.d"), 0o755))
	for name, text := range files {
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return filepath.Join(dir, "culvert.toml")
}

// TestCheckVerb wants one line on success, a line for each error, and the exit status.
func TestCheckVerb(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "ck0", "ck1")
	path := checkFiles(t, map[string]string{
		"culvert.toml":      "name = \"edge\"\ninterfaces = [\"ck0\", \"ck7\"]\n[filter]\n[[filter.rule]]\nname = \"a\"\naction = \"count\"\n",
		"culvert.d/10.toml": "[[filter.rule]]\nname = \"b\"\naction = \"count\"\n[lb]\nseed = \"x\"\n[[lb.vip]]\naddress = \"192.0.2.7:80\"\nprotocol = \"tcp\"\n",
		"culvert.d/20.toml": "[[filter.set]]\nname = \"s\"\nentries = [\"192.0.2.0/25\", \"192.0.2.128/25\", \"192.0.2.7\"]\n",
	})
	status, out, errs := culvert(t, "check", "-c", path)
	want := "note: " + path + ":2:22: interface ck7 does not exist yet: the data plane attaches to it when it does\n" +
		path + " with 2 drop-ins: ok: edge on ck0, ck7: filter (2 rules, 1 set, 3 entries), lb (1 VIP)\n"
	if status != 0 || out != want || errs != "" {
		t.Errorf("status %d, %q, %q, want %q", status, out, errs, want)
	}
	status, out, _ = culvert(t, "check", "-j", "-c", path)
	var found struct {
		OK                bool
		Files, Interfaces []string
		Name, Mode        string
		Stages            []struct {
			Stage  string
			Counts map[string]int
		}
		Errors, Notes, Unchecked []struct {
			File, Error  string
			Line, Column int
		}
	}
	must(json.Unmarshal([]byte(out), &found))
	if status != 0 || !found.OK || len(found.Files) != 3 || found.Name != "edge" || found.Mode != "native" || len(found.Stages) != 2 ||
		found.Stages[0].Counts["rules"] != 2 || found.Stages[1].Counts["vips"] != 1 || len(found.Notes) != 1 || found.Notes[0].Line != 2 {
		t.Errorf("status %d, %s", status, out)
	}

	must(os.WriteFile(filepath.Join(filepath.Dir(path), "culvert.d/30.toml"), []byte("name = \"b\"\nturbo = 1\n[route]\nblocks4 = 0\n"), 0o644))
	status, out, errs = culvert(t, "check", "-c", path)
	third := filepath.Dir(path) + "/culvert.d/30.toml"
	wantErrs := third + ":1:8: name is set at " + path + ":1:8 already: set it in one file\n" +
		third + ":2:1: unknown key \"turbo\": see 'culvert run --help' for the keys there are\n" +
		third + ":4:11: route.blocks4 = 0: use 1 to 8388608\n" +
		"culvert: " + path + ": 'culvert run' would refuse it: 3 errors\n"
	if status != 1 || strings.Contains(out, "ok:") || errs != wantErrs {
		t.Errorf("status %d, %q, %q, want %q", status, out, errs, wantErrs)
	}
	// A start names the first, in one line.
	for _, args := range [][]string{{"run", "-c", path}, {"attach", "-c", path}, {"doctor", "-c", path}, {"filter", "test", "-c", path, "x.pcap"}} {
		status, out, errs = culvert(t, args...)
		if status != 1 || out != "" || !strings.HasSuffix(errs, " (and 2 more: 'culvert check' shows them)\n") || strings.Count(errs, "\n") != 1 ||
			!strings.HasPrefix(errs, "culvert: "+third+":") {
			t.Errorf("%v: status %d, %q, %q", args, status, out, errs)
		}
	}
	status, out, _ = culvert(t, "check", "-j", "-c", path)
	must(json.Unmarshal([]byte(out), &found))
	if status != 1 || found.OK || len(found.Errors) != 3 || found.Errors[2].File != third || found.Errors[2].Line != 4 || found.Errors[2].Column != 11 ||
		found.Errors[2].Error != "route.blocks4 = 0: use 1 to 8388608" {
		t.Errorf("status %d, %s", status, out)
	}
	if status, _, errs = culvert(t, "check", path); status != 2 || !strings.Contains(errs, "give the file with -c: culvert check -c "+path) {
		t.Errorf("without -c: status %d, %q", status, errs)
	}
}

// TestCheckByUser checks files as a user who may read the configuration, and not all that it names.
func TestCheckByUser(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "ck0", "ck1")
	path := checkFiles(t, map[string]string{
		"culvert.toml": "interfaces = [\"ck0\"]\n[filter]\n[[filter.rule]]\nname = \"a\"\naction = \"count\"\nexpression = \"icmp\"\n",
		"program":      "",
		"secret":       "s3cret\n",
	})
	dir := filepath.Dir(path)
	must(os.Chmod(dir+"/secret", 0o600))
	program := dir + "/program"
	from, err := os.Open("/proc/self/exe")
	must(err)
	defer from.Close()
	to, err := os.OpenFile(program, os.O_WRONLY|os.O_TRUNC, 0)
	must(err)
	_, err = io.Copy(to, from)
	must(err)
	must(to.Close())
	must(os.Chmod(program, 0o755))
	check := func() (status int, out, errs string) {
		var stdout, stderr strings.Builder
		cmd := exec.Command(program, "check", "-c", path)
		cmd.Env = append(os.Environ(), asCulvert+"=1")
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	status, out, errs := check()
	if status != 0 || errs != "" || !strings.HasSuffix(out, path+": ok: culvert on ck0: filter (1 rule)\n") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	const bgp = "[lb]\n[lb.bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n[[lb.bgp.neighbor]]\naddress = \"192.0.2.9\"\nasn = 65000\npassword_file = \"../secret\"\n"
	must(os.WriteFile(dir+"/culvert.d/lb.toml", []byte(bgp), 0o644))
	must(os.WriteFile(dir+"/culvert.d/set.toml", []byte("[[filter.set]]\nname = \"s\"\nentries = [\"x\"]\n"), 0o644))
	status, out, errs = check()
	wantErrs := fmt.Sprintf("%s/culvert.d/set.toml:3:1: set s: \"x\" is no address", dir)
	wantOut := fmt.Sprintf("not checked: %s/culvert.d/lb.toml:8:17: neighbor 192.0.2.9: reading the password: open %[1]s/secret: permission denied: run as root\n", dir)
	if status != 1 || !strings.HasPrefix(errs, wantErrs) || !strings.Contains(errs, "refuse it: 1 error\n") || !strings.Contains(out, wantOut) {
		t.Errorf("status %d, %q, %q, want %q, %q", status, out, errs, wantOut, wantErrs)
	}
	must(os.Remove(dir + "/culvert.d/set.toml"))
	if status, out, errs = check(); status != 0 || errs != "" || !strings.Contains(out, wantOut) {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	// What a drop-in has is not known if it cannot be read.
	must(os.Chmod(dir+"/culvert.d/lb.toml", 0o600))
	if status, _, errs = check(); status != 1 || !strings.HasPrefix(errs, "reading "+dir+"/culvert.d/lb.toml: permission denied\n") {
		t.Errorf("status %d, %q", status, errs)
	}
}
