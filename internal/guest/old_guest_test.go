// SPDX-License-Identifier: Apache-2.0

//go:build guest

package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestOldKernelIsRefused runs on a kernel of OldLines. Whatever would attach is refused with one line, which says that the kernel is
// too old and where to look, and leaves nothing; doctor lists what is missing.
func TestOldKernelIsRefused(t *testing.T) {
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "culvert.toml")
	if err := os.WriteFile(config, []byte("interfaces = [\"v0\"]\n\n[[filter.rule]]\nname = \"r\"\naction = \"drop\"\nexpression = \"icmp\"\n\n[route]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "-c", config}, {"attach", "-c", config}, {"check", "-c", config}, {"filter", "add", "drop", "icmp"},
	} {
		out, err := exec.Command(culvertPath, args...).CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err == nil || !strings.Contains(text, "too old") || !strings.Contains(text, "'culvert doctor'") {
			t.Errorf("culvert %s: %v: %q", args[0], err, text)
		}
		lines := 1
		if args[0] == "check" { // and how many errors there are
			lines = 2
		}
		if n := strings.Count(text, "\n") + 1; n != lines {
			t.Errorf("culvert %s prints %d lines, want %d: %q", args[0], n, lines, text)
		}
		if left, _ := filepath.Glob("/sys/fs/bpf/culvert/*/*"); len(left) != 0 {
			t.Errorf("culvert %s leaves %q", args[0], left)
		}
		if link, err := netlink.LinkByName("v0"); err != nil || (link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached) {
			t.Errorf("culvert %s: a program is attached, or %v", args[0], err)
		}
	}
	out, err := exec.Command(culvertPath, "doctor").CombinedOutput()
	if err == nil {
		t.Error("doctor finds nothing wrong")
	}
	for _, want := range []string{"lacks cookies of network namespaces (since 5.14)", "multi-buffer XDP (since 5.18)", "linux-image-amd64"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("doctor does not say %q: %s", want, out)
		}
	}
}
