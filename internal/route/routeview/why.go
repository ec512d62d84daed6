// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/host/netfilter"
	"culvert/internal/route/routeplane"
)

// why returns why a family is not forwarded by the mirror. The host's settings are known only in the caller's network
// namespace.
func why(inst *datapath.Instance, by string, is6 bool) string {
	switch by {
	case NoMirror:
		if inst.Unattended() {
			return "it was attached without a process, and only a process keeps a mirror (culvert run)"
		}
		return "there is no mirror, as configured (mirror = false)"
	case Kernel:
		if inst.Here() {
			return whyKernel(is6)
		}
		return "settings of its network namespace: look there"
	case Stale:
		switch {
		case !inst.Served():
			return "no process keeps the mirror current"
		case !inst.Here():
		case otherRules(is6):
			return "policy rules (ip rule)"
		case !is6 && sysctlOn("ipv4/ip_forward_use_pmtu"):
			return "net.ipv4.ip_forward_use_pmtu is on"
		}
		return "the mirror is not current: the process is still reading the tables, or is behind (see its log)"
	}
	return ""
}

// forwardsNowhere4 tells whether the kernel forwards no IPv4 packets of any interface that carries the program, so that the fast
// path leaves all of them to it. It is false as long as no interface is known.
func forwardsNowhere4(inst *datapath.Instance) (bool, error) {
	plane, err := routeplane.View(inst)
	if err != nil {
		return false, err
	}
	defer plane.Close()
	devs, err := plane.Devs()
	for _, d := range devs {
		if d.Forward4 {
			return false, err
		}
	}
	return len(devs) > 0, err
}

// whyKernel looks for the setting because of which a whole family is left to the kernel.
func whyKernel(is6 bool) string {
	if is6 && !sysctlOn("ipv6/conf/all/forwarding") {
		return "net.ipv6.conf.all.forwarding is 0"
	}
	if !is6 && !sysctlOn("ipv4/ip_forward") {
		return "net.ipv4.ip_forward is 0"
	}
	if policies, err := netlink.XfrmPolicyList(int(family(is6))); err == nil && len(policies) > 0 {
		return "IPsec policies (ip xfrm policy)"
	}
	if found, err := netfilter.Find(); err == nil && len(found) > 0 {
		return "rules of netfilter (culvert doctor)"
	}
	return "its process has said so in its log"
}

// whyNowhere4 says why the kernel forwards no IPv4 packets of any interface that carries the program. Settings of the whole host come first.
func whyNowhere4(inst *datapath.Instance) string {
	if inst.Here() && !sysctlOn("ipv4/ip_forward") {
		return whyKernel(false)
	}
	return "no attached interface forwards IPv4: each is down, a port of a bridge or bond, no Ethernet, or has forwarding off"
}

func sysctlOn(name string) bool {
	value, err := os.ReadFile("/proc/sys/net/" + name)
	return err == nil && strings.TrimSpace(string(value)) != "0"
}

// otherRules reports whether there are policy rules besides the default ones.
func otherRules(is6 bool) bool {
	rules, err := netlink.RuleList(int(family(is6)))
	if err != nil {
		return false
	}
	defaults := 3 // for the tables local, main and default
	if is6 {
		defaults = 2 // local and main
	}
	return len(rules) != defaults
}
