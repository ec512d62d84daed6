// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/bpffs"
)

// inNamespace moves the test to a thread of its own with an empty network namespace. The kernel removes the namespace with
// the thread, even when the test is interrupted.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
}

// sh runs a command in the test's network namespace.
func sh(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// processElsewhere starts a process in a network namespace of its own and returns its process ID.
func processElsewhere(t *testing.T) int {
	t.Helper()
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c.Process.Pid
}

// diagnose examines one interface and returns the finding of one check.
func diagnose(t *testing.T, device, check string) *Finding {
	t.Helper()
	r, err := Run(Options{Interfaces: []string{device}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Interface == device && f.Check == check {
			return &f
		}
	}
	t.Fatalf("no finding %s of %s in %+v", check, device, r.Findings)
	return nil
}

// TestCommandsMend changes a setting for the worse, runs the command of the finding, and wants the check to pass again.
func TestCommandsMend(t *testing.T) {
	tests := []struct {
		name, prepare, check string
		status               Status
		command              string
	}{
		{"interface down", "ip link set va down", "link", Fail, "ip link set dev va up"},
		{"checksum offload", "ethtool -K va tx on", "checksum", Warn, "ethtool -K va tx off"},
		{"checksum offload of the peer", "ethtool -K vb tx on", "peer-checksum", Warn, "ethtool -K vb tx off"},
		{"GRO of the peer off", "ethtool -K vb gro off", "peer-napi", Fail, "ethtool -K vb gro on"},
		{"peer down", "ip link set vb down", "peer-napi", Fail, "ip link set dev vb up"},
		{"fewer receive queues", "ethtool -L vb tx 2", "native", Fail, "ethtool -L vb tx 1"},
		{"strict source filter", "sysctl -qw net.ipv4.conf.all.rp_filter=1", "rp_filter", Warn,
			"sysctl -w net.ipv4.conf.va.rp_filter=2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inNamespace(t)
			sh(t, `ip link add va numrxqueues 2 numtxqueues 2 type veth peer name vb numrxqueues 2 numtxqueues 2
				ethtool -L va rx 1 tx 1
				ethtool -L vb rx 1 tx 1
				ethtool -K va tx off gro on
				ethtool -K vb tx off gro on
				ip link set va up
				ip link set vb up
				sysctl -qw net.ipv4.conf.all.rp_filter=0`)
			if f := diagnose(t, "va", tt.check); f.Status != OK {
				t.Fatalf("before the change: %+v", *f)
			}
			sh(t, tt.prepare)
			f := diagnose(t, "va", tt.check)
			if f.Status != tt.status || f.Command != tt.command {
				t.Fatalf("got %v -> %q, want %v -> %q (%s)", f.Status, f.Command, tt.status, tt.command, f.Finding)
			}
			sh(t, f.Command)
			if f := diagnose(t, "va", tt.check); f.Status != OK {
				t.Errorf("after its command: %+v", *f)
			}
		})
	}
}

// TestPeerElsewhere has the peer in the namespace of another process.
func TestPeerElsewhere(t *testing.T) {
	inNamespace(t)
	pid := processElsewhere(t)
	sh(t, fmt.Sprintf(`ip link add va type veth peer name vb netns %d
		ip link set va up
		nsenter -t %[1]d -n ip link set vb up
		nsenter -t %[1]d -n ethtool -K vb gro off tx on`, pid))
	for check, command := range map[string]string{
		"peer-napi":     fmt.Sprintf("nsenter -t %d -n ethtool -K vb gro on", pid),
		"peer-checksum": fmt.Sprintf("nsenter -t %d -n ethtool -K vb tx off", pid),
	} {
		f := diagnose(t, "va", check)
		if f.Status == OK || f.Command != command {
			t.Fatalf("%s: got %v -> %q, want -> %q", check, f.Status, f.Command, command)
		}
		sh(t, f.Command)
		if f := diagnose(t, "va", check); f.Status != OK {
			t.Errorf("after its command: %+v", *f)
		}
	}

	// A named network namespace is shown by its name and not by a process.
	named := t.TempDir()
	defer func(dir string) { netnsDir = dir }(netnsDir)
	netnsDir = named
	if err := os.Symlink(fmt.Sprintf("/proc/%d/ns/net", pid), filepath.Join(named, "blue")); err != nil {
		t.Fatal(err)
	}
	sh(t, fmt.Sprintf("nsenter -t %d -n ethtool -K vb tx on", pid))
	if f := diagnose(t, "va", "peer-checksum"); f.Command != "ip netns exec blue ethtool -K vb tx off" {
		t.Errorf("got -> %q", f.Command)
	}
}

// loadPassProgram loads an XDP program of the given name that passes every packet.
func loadPassProgram(t *testing.T, name string) *ebpf.Program {
	t.Helper()
	const xdpPass = 2
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// ownBPFFS mounts a bpffs in a mount namespace of the test's thread, and has pins looked for there. It returns the path.
func ownBPFFS(t *testing.T) string {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	before := bpffsRoots
	bpffsRoots = func() []string { return []string{dir} }
	t.Cleanup(func() {
		bpffsRoots = before
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	})
	return dir
}

// TestHiddenBPFFS hides the host's bpffs by a /sys of this mount namespace, as 'ip netns exec' does, and then /proc/1 too.
// doctor has to find the bpffs where culvert pins.
func TestHiddenBPFFS(t *testing.T) {
	inNamespace(t)
	if _, ok := bpffs.Find(); !ok {
		if err := bpffs.Mount(); err != nil {
			t.Fatal(err)
		}
	}
	if here := checkPinFS(readPinFS(0)); here.Finding != "mounted at /sys/fs/bpf" {
		t.Fatalf("on the host: %+v", here)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target, fs string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, fs, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
	}
	mount("", "/", "none", unix.MS_REC|unix.MS_SLAVE)
	hidden := func(when string) {
		t.Helper()
		f := checkPinFS(readPinFS(0))
		if f.Status != OK || !strings.Contains(f.Finding, "hidden here") {
			t.Errorf("%s: %+v", when, f)
		}
	}
	mount("sysfs", "/sys", "sysfs", 0)
	hidden("without a bpffs in /sys")
	mount("bpf", "/sys/fs/bpf", "bpf", 0)
	hidden("with a bpffs of this mount namespace")
	mount(t.TempDir(), "/proc/1", "none", unix.MS_BIND)
	hidden("with /proc/1 hidden")
}

// withoutCommand clears the command of a finding, for commands that depend on the processes that have the program open.
func withoutCommand(f *Finding) *Finding {
	f.Command = ""
	return f
}

func TestAttachedPrograms(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add va type veth peer name vb; ip link set va up; ip link set vb up")
	va, err := netlink.LinkByName("va")
	if err != nil {
		t.Fatal(err)
	}

	if err := netlink.LinkSetXdpFd(va, loadPassProgram(t, "other").FD()); err != nil {
		t.Fatal(err)
	}
	f := diagnose(t, "va", "program")
	want{Fail, "carries the XDP program other (xdp,", "ip link set dev va xdp off"}.check(t, f)
	sh(t, f.Command)
	want{OK, "no XDP program", ""}.check(t, diagnose(t, "va", "program"))

	generic, err := link.AttachXDP(link.XDPOptions{
		Program: loadPassProgram(t, "by_link"), Interface: va.Attrs().Index, Flags: link.XDPGenericMode,
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := generic.Info()
	if err != nil {
		t.Fatal(err)
	}
	f = diagnose(t, "va", "program")
	want{Fail, "carries the XDP program by_link (xdpgeneric,", fmt.Sprintf("bpftool link detach id %d", info.ID)}.check(t, f)
	if me := fmt.Sprintf("[%d]", os.Getpid()); !strings.Contains(f.Finding, me) {
		t.Errorf("%q does not name this process, %s, as the holder", f.Finding, me)
	}
	if err := generic.Close(); err != nil {
		t.Fatal(err)
	}

	root := ownBPFFS(t)
	pinned, err := link.AttachXDP(link.XDPOptions{Program: loadPassProgram(t, "rx"), Interface: va.Attrs().Index})
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(root, "theirs")
	if err := pinned.Pin(theirs); err != nil {
		t.Fatal(err)
	}
	want{Fail, "carries the XDP program rx", ""}.check(t, withoutCommand(diagnose(t, "va", "program")))
	ours := filepath.Join(root, "culvert", "1", "br1", "link-va")
	if err := os.MkdirAll(filepath.Dir(ours), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := pinned.Pin(ours); err != nil {
		t.Fatal(err)
	}
	want{OK, "culvert is attached", ""}.check(t, diagnose(t, "va", "program"))
	// An XDP program on the peer turns its NAPI on.
	f = diagnose(t, "vb", "peer-napi")
	want{OK, "peer va has NAPI on", ""}.check(t, f)
}

func TestWhichInterfaces(t *testing.T) {
	inNamespace(t)
	sh(t, `ip link set lo up
		ip link add va type veth peer name vb
		ip link add vc type veth peer name vd
		ip link add name br0 type bridge
		ip link set vc master br0
		ip address add 192.0.2.1/24 dev vb
		ip address add 198.51.100.1/32 dev lo
		ip address add 2001:db8::1/64 dev vd nodad
		for i in va vb vc br0; do ip link set $i up; done`)
	tests := []struct {
		name           string
		options        Options
		want, findings []string
	}{
		{"up, no port of a bridge, no loopback", Options{}, []string{"br0", "va", "vb"}, nil},
		{"by name", Options{Interfaces: []string{"vd", "vx", "vd"}}, []string{"vd"}, []string{"FAIL interface"}},
		{"by name, waited for", Options{Interfaces: []string{"vd", "vx"}, Waits: true}, []string{"vd"}, []string{"warn interface"}},
		{"by name, of a running data plane that waits for it", Options{
			Interfaces: []string{"vd", "vx"}, Waits: true, Missing: []Missing{{Interface: "vx", Router: "culvert", Served: true}},
		}, []string{"vd"}, nil}, // checkMissing reports it
		{"by address", Options{Local: []netip.Addr{
			netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.9"),
		}}, []string{"vb", "vd"}, []string{"FAIL address"}},
		{"by address on loopback", Options{Local: []netip.Addr{
			netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.77"), netip.MustParseAddr("198.51.100.1"),
		}}, nil, []string{"ok interface"}},
		{"loopback by name", Options{Interfaces: []string{"lo"}}, nil, []string{"FAIL native"}},
		{"loopback by name, generic mode", Options{Interfaces: []string{"lo"}, Stages: Stages{Generic: true}}, []string{"lo"}, nil},
		{"loopback by address, generic mode", Options{Local: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Stages: Stages{Generic: true}}, nil, []string{"ok interface"}},
		{"loopback that culvert is attached to", Options{Attached: []string{"lo"}}, []string{"br0", "lo", "va", "vb"}, nil},
		{"renamed", Options{Interfaces: []string{"eth2", "vd"}, Renamed: map[string]string{"eth2": "va"}}, []string{"va", "vd"}, []string{"warn interface"}},
		{"renamed, and gone since", Options{Interfaces: []string{"eth2"}, Renamed: map[string]string{"eth2": "vx"}}, nil, []string{"FAIL interface"}},
	}
	for _, tt := range tests {
		c, err := chooseInterfaces(tt.options)
		if err != nil {
			t.Fatal(err)
		}
		var got, findings []string
		for _, l := range c.links {
			got = append(got, l.Attrs().Name)
		}
		for _, f := range c.findings {
			findings = append(findings, f.Status.String()+" "+f.Check)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) || !slices.Equal(findings, tt.findings) {
			t.Errorf("%s: got %v and findings %v, want %v and %v", tt.name, got, findings, tt.want, tt.findings)
		}
	}
}

// TestLoopbackInGenericMode wants nothing that keeps culvert from the loopback in generic mode.
func TestLoopbackInGenericMode(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link set lo up")
	r, err := Run(Options{Interfaces: []string{"lo"}, Stages: Stages{Filter: true, Generic: true}})
	if err != nil {
		t.Fatal(err)
	}
	var checks []string
	for _, f := range r.Findings {
		if f.Interface != "lo" {
			continue
		}
		checks = append(checks, f.Check)
		if f.Status == Fail {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Contains(checks, "native") || !slices.Contains(checks, "mtu") {
		t.Errorf("the loopback has only the checks %v", checks)
	}
}

func TestNeighbors(t *testing.T) {
	inNamespace(t)
	sh(t, `ip link add va type veth peer name vb
		ip link set va up
		ip link set vb up
		ip address add 192.0.2.1/24 dev va
		ip address add 2001:db8::1/64 dev va nodad
		ip route add 198.51.100.0/24 via 192.0.2.2
		ip neighbor add 192.0.2.2 lladdr 02:00:00:00:00:02 dev va
		ip neighbor add 2001:db8::2 lladdr 02:00:00:00:00:02 dev va`)
	for addr, w := range map[string]want{
		"192.0.2.1":    {OK, "of this host", ""},
		"192.0.2.2":    {OK, "192.0.2.2 is at 02:00:00:00:00:02", ""},
		"198.51.100.7": {OK, "through 192.0.2.2 at 02:00:00:00:00:02", ""},
		"2001:db8::2":  {OK, "02:00:00:00:00:02", ""},
		"192.0.2.3":    {Warn, "not resolved yet", "ping -c 1 -I va 192.0.2.3"},
		"203.0.113.1":  {Fail, "network is unreachable", "ip route add 203.0.113.1 via GATEWAY"},
	} {
		f := checkNeighbor(readNeighbor(netip.MustParseAddr(addr)))
		t.Run(addr, func(t *testing.T) { w.check(t, &f) })
	}
}
