// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/lab"
)

const nobody = 65534

// TestWithoutRoot runs culvert as another user. Each command must fail with one clear line, whether the keys can be read or
// not.
func TestWithoutRoot(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "nob"})
	as, err := l.AS("rut")
	check(t, err)
	// User nobody may run this copy.
	copied := filepath.Join(l.Dir, "culvert")
	b, err := os.ReadFile(program())
	check(t, err)
	check(t, os.WriteFile(copied, b, 0o755))
	node := nodeConfig(t, l, "rut")
	asNobody := func(a *syscall.SysProcAttr) { a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody} }
	s := observe(t, l)
	run := []string{copied, "scion", "run", "--config", as.RouterConfig}
	s.refuse(t, refusal{args: run, status: 1, says: "master0.key: permission denied", change: asNobody})
	check(t, filepath.WalkDir(as.Keys, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chown(path, nobody, nobody)
		}
		return err
	}))
	key := filepath.Join(l.Dir, "key")
	check(t, os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAA==\n"), 0o600))
	for _, args := range [][]string{
		run,
		{copied, "attach", "-c", node, "to-a", "to-b"},
		{copied, "lab", "up", "veth", "--name", "cvnobody"},
		{copied, "key", "add", "--on", as.RouterID, "0", key},
		{copied, "detach", "to-a"},
	} {
		t.Run(args[1], func(t *testing.T) {
			s.refuse(t, refusal{args: args, status: 1, says: "root", change: asNobody})
		})
	}
}

// inMounts returns a command that runs a shell script and then argv.
func inMounts(script string, argv ...string) []string {
	return append([]string{"/bin/sh", "-ec", script + `; exec "$@"`, "sh"}, argv...)
}

// TestPrivateMounts starts culvert where /sys is not the host's, as 'ip netns exec' does, or has no bpffs. The pins must be in
// the host's bpffs nevertheless, and the data plane must outlive the process.
func TestPrivateMounts(t *testing.T) {
	for name, wrap := range map[string]func(l *lab.Lab, argv ...string) []string{
		"ip netns exec": func(l *lab.Lab, argv ...string) []string {
			n, err := l.Namespace("rut")
			check(t, err)
			return append([]string{"ip", "netns", "exec", n.NetNS}, argv...)
		},
		"no bpffs": func(_ *lab.Lab, argv ...string) []string {
			return append([]string{"unshare", "--mount"}, inMounts("umount /sys/fs/bpf", argv...)...)
		},
		"fresh sys": func(_ *lab.Lab, argv ...string) []string {
			return append([]string{"unshare", "--mount"}, inMounts("mount -t sysfs sysfs /sys", argv...)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBetween(t, lab.Options{Name: fmt.Sprintf("m%d", len(name))})
			p := b.serveAs(t, wrap(b.lab, program(), "scion", "run", "--config", b.config)...)
			if len(pins(t, b.lab, "rut")) == 0 {
				t.Error("nothing is pinned in the host's bpffs")
			}
			s := b.stream(t, "", 0)
			load := startLoad(t, b.from, s)
			load.wait(100)
			p.end(syscall.SIGKILL)
			load.wait(100)
			// A process with the host's mounts adopts the data plane.
			b.serve(t)
			load.wait(100)
			load.stop()
			settled(t, b.sink)
			s.wantAll(t, b.sink)
		})
	}
}

// TestNoBPFFS starts culvert where nobody has mounted bpffs, as far as it can see. It mounts one. If it may not, it says so
// and changes nothing.
func TestNoBPFFS(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "nob2", StaticNeighbors: true})
	node := nodeConfig(t, l, "rut")
	host := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child"}
	const bare = "mount -t proc proc /proc; umount /sys/fs/bpf"
	t.Run("mounted", func(t *testing.T) {
		out, err := l.Run(t.Context(), "rut", append(host, inMounts(bare, "/bin/sh", "-ec",
			`"$0" attach -c "$1" to-a to-b; find /sys/fs/bpf -name 'link-to-*'`, program(), node)...)...)
		if err != nil || strings.Count(string(out), "/link-to-") != 2 {
			t.Errorf("attached on a host without bpffs: %v\n%s", err, out)
		}
		// The bpffs goes with its mount namespace, and the data plane goes with it.
		wait(t, "the programs to go", func() bool {
			return xdpProgram(t, l, "rut", "to-a") == 0 && xdpProgram(t, l, "rut", "to-b") == 0
		})
	})
	t.Run("not allowed", func(t *testing.T) {
		s := observe(t, l)
		withoutSysAdmin := "setpriv --bounding-set -sys_admin --inh-caps -sys_admin"
		argv := append(host, inMounts(bare, append(strings.Fields(withoutSysAdmin), program(), "attach", "-c", node, "to-a", "to-b")...)...)
		argv[0] = "/usr/bin/unshare"
		s.refuse(t, refusal{args: argv, status: 1, says: "bpffs"})
	})
}
