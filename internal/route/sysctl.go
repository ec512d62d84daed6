// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"culvert/internal/route/routeplane"
)

const (
	// confEvery is how old what is known of a device's settings may get. The kernel reports changes of some
	// of them, and these are read at once.
	confEvery = time.Second
	// confsPerTick bounds how many devices are read before notifications are.
	confsPerTick = 64
	// ipsecEvery is how often the policies of IPsec are listed whose number has not changed.
	ipsecEvery = 5 * time.Second
	// netconfIfindex is NETCONFA_IFINDEX.
	netconfIfindex = 1
)

// conf is the settings of one device, or of all.
type conf struct {
	forward4, forward6 bool
	rpFilter           uint8
	redirects          bool
	mtu6               int
}

// sysctl reads a number; a setting that the kernel does not have is 0. The directory shows the network
// namespace of the thread that reads.
func sysctl(name string) int {
	text, err := os.ReadFile("/proc/sys/net/" + name)
	if err != nil {
		return 0
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return value
}

// allDevices is a name beside those of devices. Its forwarding counts for all of them, its disable_ipv6 for none: that
// only changes theirs.
const allDevices = "all"

func readConf(name string) conf {
	four, six := "ipv4/conf/"+name+"/", "ipv6/conf/"+name+"/"
	return conf{
		forward4:  sysctl(four+"forwarding") != 0,
		forward6:  sysctl(six+"forwarding") != 0 && (name == allDevices || sysctl(six+"disable_ipv6") == 0),
		rpFilter:  uint8(sysctl(four + "rp_filter")),
		redirects: sysctl(four+"send_redirects") != 0,
		mtu6:      sysctl(six + "mtu"),
	}
}

// conf gives the settings of a device.
func (f *feed) conf(index int) conf {
	c, ok := f.confs[index]
	if !ok {
		c = readConf(f.devices[index].name)
		f.confs[index] = c
	}
	return c
}

// handleNetconf takes in RTM_NEWNETCONF.
func (f *feed) handleNetconf(m message) {
	// struct netconfmsg: family, padded.
	if len(m.data) < 4 {
		return
	}
	for b := m.data[4:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			return
		}
		b = rest
		if kind != netconfIfindex {
			continue
		}
		index := int(int32(u32(value)))
		if _, ok := f.confs[index]; ok {
			f.rereadConf(index)
		} else if index < 0 {
			f.readAll()
			// The kernel copies settings of all to every device.
			for index := range f.confs {
				f.rereadConf(index)
			}
		}
	}
}

func (f *feed) rereadConf(index int) {
	d, ok := f.devices[index]
	if !ok {
		return
	}
	if now := readConf(d.name); now != f.confs[index] {
		f.confs[index] = now
		f.devicesChanged = true
	}
}

// readAll reads the settings that concern all devices.
func (f *feed) readAll() {
	if all := readConf(allDevices); all != f.all {
		f.all = all
		f.devicesChanged = true
	}
	f.pathMTU4 = sysctl("ipv4/ip_forward_use_pmtu") != 0
	f.hash4 = uint8(sysctl("ipv4/fib_multipath_hash_policy"))
	f.hash6 = uint8(sysctl("ipv6/fib_multipath_hash_policy"))
	f.setPolicy()
}

// tickConfs reads some devices' settings again, each about once in confEvery.
func (f *feed) tickConfs(sinceLast time.Duration) {
	if len(f.confQueue) == 0 {
		for index := range f.confs {
			f.confQueue = append(f.confQueue, index)
		}
	}
	n := int(int64(len(f.confs))*int64(sinceLast)/int64(confEvery)) + 1
	n = min(n, confsPerTick, len(f.confQueue))
	for _, index := range f.confQueue[:n] {
		if _, ok := f.confs[index]; ok {
			f.rereadConf(index)
		}
	}
	f.confQueue = f.confQueue[n:]
}

// setPolicy tells the data plane what the host has set that changes how routes are chosen.
func (f *feed) setPolicy() {
	p := routeplane.Policy{
		Kernel4: f.ipsec4, Kernel6: f.ipsec6 || !f.all.forward6,
		Hash4: f.hash4, Hash6: f.hash6,
		FullCheck4: f.customRules[0] || f.customLocal4 || f.realms4, Rules4: f.portRules[0], Rules6: f.portRules[1],
		MTU4: uint16(min(f.lowestMTU[0], 65535)), MTU6: uint16(min(f.lowestMTU[1], 65535)),
	}
	if f.policyPushed && p == f.policy {
		return
	}
	f.policy, f.policyPushed = p, true
	if err := f.plane.SetPolicy(p); err != nil {
		f.fail(fmt.Errorf("writing the routing policy into the data plane: %w", err))
	}
}

// tickIPsec looks for policies of IPsec, which the programs would bypass.
func (f *feed) tickIPsec() {
	counts, err := countIPsec()
	if err != nil {
		f.once("ipsec", "whether there are policies of IPsec cannot be told; what was known of them stays", "err", err)
		return
	}
	if counts == f.ipsecCounts && f.now()-f.ipsecListed < ipsecEvery {
		return
	}
	f.ipsecCounts, f.ipsecListed = counts, f.now()
	any := counts != [3]uint32{}
	f.ipsec4 = any && listIPsec(f.rtnl, unix.AF_INET)
	f.ipsec6 = any && listIPsec(f.rtnl, unix.AF_INET6)
	f.setPolicy()
}

// countIPsec asks for the number of policies of each direction only, since there can be many.
func countIPsec() (counts [3]uint32, err error) {
	// struct of the request: flags. The answer has them again before its attributes.
	const flagsSize, attrInfo = 4, 1 // XFRMA_SPD_INFO
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETSPDINFO, 0)
	req.AddRawData(make([]byte, flagsSize))
	answers, err := req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWSPDINFO)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return counts, nil // a kernel without IPsec
	case err != nil:
		return counts, fmt.Errorf("asking for the policies of IPsec: %w", err)
	case len(answers) == 0 || len(answers[0]) < flagsSize:
		return counts, nil
	}
	for b := answers[0][flagsSize:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			return counts, nil
		}
		if kind == attrInfo && len(value) >= 4*len(counts) {
			for i := range counts {
				counts[i] = u32(value[4*i:])
			}
		}
		b = rest
	}
}

func listIPsec(h *netlink.Handle, family int) bool {
	policies, err := h.XfrmPolicyList(family)
	// There are some, even if not all can be read.
	return err != nil || len(policies) > 0
}
