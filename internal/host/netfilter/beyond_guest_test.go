// SPDX-License-Identifier: Apache-2.0

//go:build guest

package netfilter

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestIPVSOfTheKernel adds services. On kernels without IPVS, TestIPVS reads a text instead.
func TestIPVSOfTheKernel(t *testing.T) {
	inNamespace(t)
	admin := func(line string) {
		t.Helper()
		if out, err := exec.Command("ipvsadm", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ipvsadm %s: %v: %s", line, err, out)
		}
	}
	on := func(want ...Finding) {
		t.Helper()
		found, err := FindOn(nil)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, found, want...)
	}
	on()
	// IPVS checks that a server is a unicast address, and needs the table of local addresses for that. The loopback device
	// makes the kernel create it.
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	admin("-A -t 192.0.2.1:80 -s sh")
	admin("-a -t 192.0.2.1:80 -r 10.0.0.2:80 -m")
	admin("-a -t 192.0.2.1:80 -r 10.0.0.3:80 -i")
	on(Finding{Backend: IPVS, Rules: 1}) // servers do not count
	admin("-A -u [2001:db8::1]:53 -s mh")
	admin("-A -f 7 -s sh")
	on(Finding{Backend: IPVS, Rules: 3})
	inNamespace(t) // services of another namespace do not count
	on()
}

// TestNetfilterProgramOfTheKernel is TestNetfilterProgram, except on Linux 6.1, which has no such programs. There Programs
// must return no error.
func TestNetfilterProgramOfTheKernel(t *testing.T) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(unix.ByteSliceToString(name.Release[:]), "6.1.") {
		TestNetfilterProgram(t)
		return
	}
	if found, err := Programs(); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
