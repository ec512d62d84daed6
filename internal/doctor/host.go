// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// rpFilter returns the effective value of rp_filter for a device: the kernel takes the larger of all's and the device's own.
func rpFilter(device string) string {
	return max(sysctl("net/ipv4/conf/all/rp_filter"), sysctl("net/ipv4/conf/"+device+"/rp_filter"))
}

// sysctl reads a sysctl by its path below /proc/sys. Those below net/ are read from the network namespace of the calling
// thread. The value is "" if there is no such sysctl.
func sysctl(path string) string {
	b, err := os.ReadFile("/proc/sys/" + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// capability is a capability that culvert uses.
type capability struct {
	bit  uint
	name string
	use  string
	// required is false for a capability without which only some functions are missing.
	required bool
}

var wantedCapabilities = []capability{
	{unix.CAP_BPF, "CAP_BPF", "load programs and make maps", true},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "attach to interfaces", true},
	{unix.CAP_PERFMON, "CAP_PERFMON", "count lost redirects from tracepoints", true},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "mount bpffs, see whose XDP programs are attached", false},
}

// capabilities returns the effective capabilities of this process as a bit mask.
func capabilities() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

func checkPrivileges(effective uint64) Finding {
	f := Finding{Check: "privileges", Finding: "all capabilities that culvert uses"}
	var missing []string
	for _, c := range wantedCapabilities {
		if effective&(1<<c.bit) != 0 {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s (%s)", c.name, c.use))
		f.Status = max(f.Status, Warn)
		if c.required {
			f.Status = Fail
		}
	}
	if missing != nil {
		f.Finding = "missing " + strings.Join(missing, ", ")
		f.Command = "sudo culvert doctor"
	}
	return f
}

// probeJIT loads a program of two instructions and looks whether the kernel compiled it. Reading the sysctl
// net.core.bpf_jit_enable is no substitute, because it exists in the initial network namespace only.
func probeJIT() (compiled bool, err error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		return false, err
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return false, err
	}
	size, err := info.JitedSize()
	return err == nil && size > 0, nil
}

// plain replaces an EPERM of the eBPF library, whose text suggests that the limit of locked memory is too low. Since Linux
// 5.11 that limit does not apply to eBPF, so a privilege is missing.
func plain(err error) error {
	if errors.Is(err, unix.EPERM) {
		return unix.EPERM
	}
	return err
}

func checkJIT(compiled bool, err error) Finding {
	f := Finding{Check: "jit"}
	switch {
	case err != nil:
		f.Status = Warn
		f.Finding = fmt.Sprintf("not known: loading a program failed: %v", plain(err))
		f.Command = "sudo culvert doctor"
	case compiled:
		f.Finding = "programs run as machine code"
	default:
		f.Status = Fail
		f.Finding = "programs are interpreted, about ten times slower"
		f.Command = "sysctl -w net.core.bpf_jit_enable=1"
	}
	return f
}

// checkBPFStats judges the value of the sysctl kernel.bpf_stats_enabled.
func checkBPFStats(value string) Finding {
	f := Finding{Check: "bpf-stats", Finding: "run-time statistics of programs are off"}
	if value != "" && value != "0" {
		f.Status = Warn
		f.Finding = "run-time statistics of programs are on: two clock readings for every packet"
		f.Command = "sysctl -w kernel.bpf_stats_enabled=0"
	}
	return f
}

// clock is the state of the system clock.
type clock struct {
	// tai is CLOCK_TAI minus CLOCK_REALTIME.
	tai          time.Duration
	synchronised bool
	// maxError is the kernel's bound of the error. It has no meaning unless synchronised is set.
	maxError time.Duration
}

// staUnsync is STA_UNSYNC of linux/timex.h.
const staUnsync = 0x40

func readClock() (clock, error) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return clock{}, fmt.Errorf("read the state of the system clock: %w", err)
	}
	return clock{
		tai:          time.Duration(t.Tai) * time.Second,
		synchronised: t.Status&staUnsync == 0,
		maxError:     time.Duration(t.Maxerror) * time.Microsecond,
	}, nil
}

// checkClock judges the system clock. Hop fields expire by the wall clock.
func checkClock(c clock) Finding {
	f := Finding{Check: "clock"}
	if !c.synchronised {
		f.Status = Warn
		f.Finding = fmt.Sprintf("not synchronised: hop fields may expire early or late (TAI offset %v)", c.tai)
		f.Command = "timedatectl set-ntp true"
		return f
	}
	f.Finding = fmt.Sprintf("synchronised within %v (TAI offset %v)", c.maxError.Round(time.Millisecond), c.tai)
	return f
}

// checkForwarding judges the kernel's forwarding of IPv4 and IPv6. The IP router forwards a family only if the kernel does;
// a SCION router needs neither.
func checkForwarding(v4, v6 string, route, scion bool) Finding {
	words := map[string]string{"0": "off", "1": "on", "": "absent"}
	word := func(v string) string {
		if s, ok := words[v]; ok {
			return s
		}
		return v
	}
	f := Finding{Check: "forwarding", Finding: fmt.Sprintf("IPv4 %s, IPv6 %s", word(v4), word(v6))}
	switch {
	case !route && scion:
		f.Finding += "; the SCION router needs neither"
	case !route:
	case v4 != "1" || v6 != "1":
		f.Status = Warn
		f.Finding += ": the IP router forwards what the kernel would"
		f.Command = "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
	}
	return f
}
