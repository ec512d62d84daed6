// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/host/trust"
	"culvert/internal/host/unixsock"
)

// upFilter sets up a lab of topology filter with bin/culvert.
func upFilter(t *testing.T) (l *Lab, culvert string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	culvert = filepath.Join(root, "bin", "culvert")
	return up(t, "filter", Options{Name: testName(t, "filter"), Culvert: culvert, Out: t.Output()}), culvert
}

// labExec runs a command in a namespace with 'culvert lab exec' and returns its output.
func labExec(t *testing.T, l *Lab, ns, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), l.Culvert, append([]string{"lab", "exec", l.Name, ns}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestOutsideOfLab has commands that are not run where the lab's data plane is, or not with all that they need: they say where it is, and
// what there is.
func TestOutsideOfLab(t *testing.T) {
	l, culvert := upFilter(t)
	for _, tt := range []struct{ args, want string }{
		{"capture -n 1", "no data plane in this network namespace, but "},
		{"capture -n 1", " is in cv-" + l.Name + "-host"},
		{"capture -n 1", "'ip netns exec "},
		{"filter list", " is in cv-" + l.Name + "-host"},
		{"lab exec " + l.Name, "name a namespace of lab " + l.Name + " and a command: it has host, client (see 'culvert lab exec --help')"},
		{"lab exec " + l.Name + " host", "takes at least 3 arguments, not 2"},
	} {
		out, err := exec.CommandContext(t.Context(), culvert, strings.Fields(tt.args)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), tt.want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v, %s, want one line with %q", tt.args, err, out, tt.want)
		}
	}
}

// rulePackets returns the packets that a rule has counted.
func rulePackets(t *testing.T, l *Lab, rule string) int {
	t.Helper()
	out, err := labExec(t, l, "host", "", "culvert", "filter", "list", "-j")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var list struct {
		Rules []struct {
			Rule    string
			Packets int
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, r := range list.Rules {
		if r.Rule == rule {
			return r.Packets
		}
	}
	t.Fatalf("no rule %s in %s", rule, out)
	return 0
}

// TestFilterLab adds a rule with a program of tcpdump that drops pings, and deletes it again. Rules that are refused change
// nothing.
func TestFilterLab(t *testing.T) {
	l, _ := upFilter(t)
	ping := func(addr string) bool {
		t.Helper()
		out, err := labExec(t, l, "client", "", "ping", "-c", "2", "-i", "0.1", "-W", "1", addr)
		if err != nil && !strings.Contains(out, "100% packet loss") {
			t.Fatalf("ping %s: %v: %s", addr, err, out)
		}
		return err == nil
	}
	if !ping("198.18.1.1") || !ping("2001:db8:1::1") {
		t.Fatal("no answer through an empty filter")
	}
	var program bytes.Buffer
	dump := exec.CommandContext(t.Context(), "tcpdump", "-y", "EN10MB", "-ddd", "icmp")
	dump.Stdout = &program
	if err := dump.Run(); err != nil {
		t.Fatal(err)
	}
	if out, err := labExec(t, l, "host", program.String(), "culvert", "filter", "add", "--name", "noicmp", "drop", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if ping("198.18.1.1") {
		t.Error("ICMP was answered")
	}
	if n := rulePackets(t, l, "noicmp"); n != 2 {
		t.Errorf("the rule has counted %d packets", n)
	}
	if !ping("2001:db8:1::1") {
		t.Error("ICMPv6 was not answered")
	}
	for _, bad := range []struct{ stdin, args, want string }{
		{"", "drop udp prot 53", "column 5"},
		{"", "drop inbound", "direction"},
		{"2\n40 0 0 12\n21 9 0 2048\n", "drop -", "beyond the end"},
		{"", "--src @none drop", "none"},
		{"", "-i to-nowhere drop icmp", "to-nowhere"},
	} {
		out, err := labExec(t, l, "host", bad.stdin, append([]string{"culvert", "filter", "add"}, strings.Fields(bad.args)...)...)
		if err == nil || !strings.Contains(out, bad.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("add %s: %v: %q, want a line with %q", bad.args, err, out, bad.want)
		}
	}
	if ping("198.18.1.1") || rulePackets(t, l, "noicmp") != 4 {
		t.Error("a rule that was refused has changed the filter")
	}
	if out, err := labExec(t, l, "host", "", "culvert", "filter", "del", "noicmp"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !ping("198.18.1.1") {
		t.Error("no answer without the rule")
	}
}

// TestFilterLabProtect has a real HTTP client of a protected service.
func TestFilterLabProtect(t *testing.T) {
	l, _ := upFilter(t)
	for _, addr := range []string{"198.18.1.1:9441", "[2001:db8:1::1]:9441"} {
		if out, err := labExec(t, l, "host", "", "culvert", "filter", "protect", addr); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		err := l.Do("client", func() error {
			conn, err := net.DialTimeout("tcp", addr, 20*time.Second) // here, since this thread is in the namespace
			if err != nil {
				return err
			}
			defer conn.Close()
			client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
			}}
			resp, err := client.Get("http://" + addr + "/metrics")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			page, err := io.ReadAll(resp.Body)
			if err == nil && !bytes.Contains(page, []byte(`reason="filter-synack"`)) {
				err = fmt.Errorf("the page has no reason filter-synack: %s", page)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestDownAfterKill takes a lab down whose culvert was killed: its sockets and the files with its state, which a process that ends
// removes, go with the lab.
func TestDownAfterKill(t *testing.T) {
	l, _ := upFilter(t)
	inodes := l.inodes()
	eventually(t, "culvert writes a file about its stages", func() bool {
		found := 0
		for ns := range inodes {
			files, err := runFiles(ns)
			if err != nil {
				t.Fatal(err)
			}
			found += len(files)
		}
		return found > 0 && len(sockets(t)) >= 2
	})
	if err := l.Stop(CulvertProcess("host"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	for ns := range inodes {
		if files, err := runFiles(ns); err != nil || len(files) != 0 {
			t.Errorf("left behind: %v, %v", files, err)
		}
	}
	if left := sockets(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// sockets returns those of culvert processes.
func sockets(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(trust.RunDir, "*"+unixsock.Extension))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
