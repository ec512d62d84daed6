// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestRouteSaysWhatItLeavesToTheKernel runs the IP router without forwarding in the kernel, and with an interface to which frames cannot
// be redirected. The log reports each.
func TestRouteSaysWhatItLeavesToTheKernel(t *testing.T) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	must(unix.Unshare(unix.CLONE_NEWNET))
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "fw0"}, PeerName: "fw1"}))
	for _, end := range []string{"fw0", "fw1"} {
		l, err := netlink.LinkByName(end)
		must(err)
		must(netlink.LinkSetUp(l))
	}
	sysctl := func(value string) {
		must(os.WriteFile("/proc/sys/net/ipv4/conf/fw0/forwarding", []byte(value), 0))
	}
	sysctl("0")
	path := filepath.Join(t.TempDir(), "c.toml")
	must(os.WriteFile(path, []byte("name = \"fwd\"\ninterfaces = [\"fw0\"]\n[route]\nbypass_netfilter = true\n"), 0o600))
	run := startCulvert(t, "run", "-c", path)
	run.waitFor(t, `does not: it is left to the kernel (route-off)" interface=fw0 mend="sysctl -w net.ipv4.conf.all.forwarding=1"`)
	run.waitFor(t, `no frames can be redirected to an interface: the kernel forwards what leaves by it (route-egress); see 'culvert doctor'" interface=fw0`)
	sysctl("1")
	run.waitFor(t, `the kernel forwards IPv4 of an interface, and so does the fast path" interface=fw0`)
	run.interrupt(t)
	if status, _, errs := culvert(t, "detach", "--all"); status != 0 {
		t.Error(errs)
	}
}

// TestWorkersForNothing runs workers without a stage whose packets are spread. The log says so.
func TestWorkersForNothing(t *testing.T) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with the test
	must(unix.Unshare(unix.CLONE_NEWNET))
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "wn0"}, PeerName: "wn1"}))
	path := filepath.Join(t.TempDir(), "c.toml")
	must(os.WriteFile(path, []byte("name = \"idle\"\ninterfaces = [\"wn0\"]\n[workers]\ncpus = [0]\n[filter]\n"), 0o600))
	run := startCulvert(t, "run", "-c", path)
	run.waitFor(t, "[workers] has no effect: there is none of [scion], [route] and [lb]")
	run.interrupt(t)
	if status, _, errs := culvert(t, "detach", "--all"); status != 0 {
		t.Error(errs)
	}
}
