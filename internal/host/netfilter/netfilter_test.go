// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUntouched checks that Find finds nothing in an empty namespace, and creates nothing.
func TestUntouched(t *testing.T) {
	inNamespace(t)
	state := func() string {
		return sh(t, "cat /proc/net/ip_tables_names; echo; cat /proc/net/ip6_tables_names; nft list ruleset")
	}
	before := state()
	if strings.TrimSpace(before) != "" {
		t.Fatalf("a fresh namespace has %q", before)
	}
	expect(t, find(t))
	if after := state(); after != before {
		t.Errorf("after looking there is %q", after)
	}
	// Listing a table creates it. This shows that the comparison above can fail.
	sh(t, "iptables-legacy -L -n")
	if state() == before {
		t.Error("the state does not show a table that was made")
	}
	expect(t, find(t))
}

// TestOwnNamespace checks that Find looks at the thread's namespace, and not at the process's.
func TestOwnNamespace(t *testing.T) {
	inNamespace(t)
	sh(t, "nft 'table ip t { chain c { type filter hook forward priority 0; drop; }; }'\niptables-legacy -A FORWARD -j DROP")
	if n := len(find(t)); n != 2 {
		t.Fatalf("%d findings here, want 2", n)
	}
	elsewhere := make(chan []Finding)
	go func() {
		inNamespace(t)
		found, err := Find()
		if err != nil {
			t.Error(err)
		}
		elsewhere <- found
	}()
	expect(t, <-elsewhere)
}

// TestAll finds rules of nftables and of legacy tables, and checks their summary.
func TestAll(t *testing.T) {
	inNamespace(t)
	sh(t, `nft 'table inet filter { chain forward { type filter hook forward priority 0; policy drop; counter; counter; counter; }; }'
		iptables-legacy -t nat -A POSTROUTING -j MASQUERADE
		ip6tables-legacy -P FORWARD DROP`)
	const want = "nft inet filter forward (3 rules, policy drop), iptables nat POSTROUTING (1 rule), " +
		"ip6tables filter FORWARD (no rules, policy drop)"
	found := find(t)
	if got := Summary(found); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, f := range found {
		if out := sh(t, f.Show()); !strings.Contains(out, f.Chain) {
			t.Errorf("%q shows %s", f.Show(), out)
		}
	}
}

func TestSummary(t *testing.T) {
	forward := nftChain("ip", "t", "c", "forward", "accept", 1)
	ingress := nftChain("netdev", "t", "in", "ingress", "accept", 2, "e0", "e1", "e2", "e3")
	flows := Finding{Backend: NFT, Family: "inet", Table: "t", Chain: "f", Flowtable: true, Hook: "ingress", Devices: []string{"e0", "e1"}}
	for _, tt := range []struct {
		findings []Finding
		want     string
	}{
		{nil, ""},
		{[]Finding{forward}, "nft ip t c (1 rule)"},
		{[]Finding{ingress, flows}, "nft netdev t in on e0, e1 and 2 more (2 rules), nft inet t flowtable f on e0, e1 (no rules)"},
		{[]Finding{forward, forward, forward}, "nft ip t c (1 rule), nft ip t c (1 rule), nft ip t c (1 rule)"},
		{[]Finding{forward, forward, forward, forward, forward}, "nft ip t c (1 rule), nft ip t c (1 rule), nft ip t c (1 rule) and 2 more"},
	} {
		if got := Summary(tt.findings); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

// TestPrivilege drops CAP_NET_ADMIN from the test's thread, and checks the errors.
func TestPrivilege(t *testing.T) {
	inNamespace(t)
	sh(t, "iptables-legacy -A FORWARD -j DROP\nip6tables-legacy -A FORWARD -j DROP")
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	for name, look := range map[string]func() error{
		"Find":       func() error { _, err := Find(); return err },
		"Generation": func() error { _, err := Generation(); return err },
		"iptables":   func() error { _, err := ip4.find(); return err },
		"ip6tables":  func() error { _, err := ip6.find(); return err },
	} {
		err := look()
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("%s without CAP_NET_ADMIN: %v", name, err)
		}
	}
}

// TestNoIPTables checks that a kernel without the list of tables has no tables.
func TestNoIPTables(t *testing.T) {
	l := ip4
	l.names = filepath.Join(t.TempDir(), "ip_tables_names")
	found, err := l.find()
	if err != nil {
		t.Error(err)
	}
	expect(t, found)
}

func TestAskable(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	builtIn := "lib/modules/" + unix.ByteSliceToString(u.Release[:]) + "/modules.builtin"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"no modules in this kernel", nil, true},
		{"loaded, first", map[string]string{"proc/modules": "nf_tables 1 0 - Live 0x0\n", builtIn: ""}, true},
		{"loaded", map[string]string{"proc/modules": "veth 1 0\nnf_tables 1 0 - Live 0x0\n", builtIn: ""}, true},
		{"not loaded", map[string]string{"proc/modules": "veth 1 0 nf_tables, Live 0x0\n", builtIn: "kernel/fs/ext4/ext4.ko\n"}, false},
		{"built in", map[string]string{"proc/modules": "veth 1 0\n", builtIn: "kernel/net/netfilter/nf_tables.ko\n"}, true},
		{"no list of built-in modules", map[string]string{"proc/modules": "veth 1 0\n"}, true},
	} {
		root := t.TempDir()
		for name, content := range tt.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := askable(root); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
