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
	// confEvery is the period in which each device's settings are read again. Those of which the kernel notifies
	// are read at once besides.
	confEvery = time.Second
	// confsPerTick bounds how many devices' settings are read in one tick, since notifications wait meanwhile.
	confsPerTick = 64
	// ipsecEvery is how often IPsec policies are listed if their number has not changed.
	ipsecEvery = 5 * time.Second
	// netconfIfindex is NETCONFA_IFINDEX.
	netconfIfindex = 1
)

// conf holds the settings of one device, or of the pseudo device "all".
type conf struct {
	forward4, forward6 bool
	rpFilter           uint8
	redirects          bool
	mtu6               int
	// ignoresDown4 and ignoresDown6 are true if the kernel does not choose next hops by a device without a carrier.
	ignoresDown4, ignoresDown6 bool
}

// sysctl reads a number below /proc/sys/net, which shows the network namespace of the calling thread. A setting
// that the kernel does not have is 0.
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

// allDevices is the pseudo device whose settings concern all devices. Its forwarding setting applies to all of them.
// Its disable_ipv6 does not: writing it only changes the devices' own.
const allDevices = "all"

func readConf(name string) conf {
	four, six := "ipv4/conf/"+name+"/", "ipv6/conf/"+name+"/"
	return conf{
		forward4:  sysctl(four+"forwarding") != 0,
		forward6:  sysctl(six+"forwarding") != 0 && (name == allDevices || sysctl(six+"disable_ipv6") == 0),
		rpFilter:  uint8(sysctl(four + "rp_filter")),
		redirects: sysctl(four+"send_redirects") != 0,
		mtu6:      sysctl(six + "mtu"),

		ignoresDown4: sysctl(four+"ignore_routes_with_linkdown") != 0,
		ignoresDown6: sysctl(six+"ignore_routes_with_linkdown") != 0,
	}
}

// conf returns the settings of a device, and reads them the first time.
func (f *feed) conf(index int) conf {
	c, ok := f.confs[index]
	if !ok {
		c = readConf(f.devices[index].name)
		f.confs[index] = c
	}
	return c
}

// handleNetconf applies an RTM_NEWNETCONF: it reads the settings of the device again.
func (f *feed) handleNetconf(m message) {
	// The header is struct netconfmsg: the family, padded to 4 bytes.
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
			// The kernel copies settings of "all" to every device.
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
		f.unsettleAll((*descriptor).chooses)
	}
}

// readAll reads the settings that concern all devices.
func (f *feed) readAll() {
	if all := readConf(allDevices); all != f.all {
		f.all = all
		f.devicesChanged = true
		f.unsettleAll((*descriptor).chooses)
	}
	f.pathMTU4 = sysctl("ipv4/ip_forward_use_pmtu") != 0
	hash4, hash6 := uint8(sysctl("ipv4/fib_multipath_hash_policy")), uint8(sysctl("ipv6/fib_multipath_hash_policy"))
	seed, useNeighbors4 := sysctl("ipv4/fib_multipath_hash_seed"), sysctl("ipv4/fib_multipath_use_neigh") != 0
	if hash4 != f.hash4 || hash6 != f.hash6 || seed != f.hashSeed || useNeighbors4 != f.useNeighbors4 {
		f.hash4, f.hash6, f.hashSeed, f.useNeighbors4 = hash4, hash6, seed, useNeighbors4
		f.unsettleAll((*descriptor).chooses)
	}
	f.setPolicy()
}

// tickConfs reads the settings of some devices again, so that each device has its turn about once in confEvery.
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

// setPolicy writes the settings that change how routes are chosen into the data plane.
func (f *feed) setPolicy() {
	p := routeplane.Policy{
		Kernel4: f.ipsec4, Kernel6: f.ipsec6 || !f.all.forward6,
		Hash4: f.hash4, Hash6: f.hash6,
		FullCheck4: f.customRules[0] || f.customLocal4 || f.realms4, Rules4: f.portRules[0], Rules6: f.portRules[1],
		MTU4: uint16(min(f.lowestMTU[0], 65535)), MTU6: uint16(min(f.lowestMTU[1], 65535)),
	}
	if f.policyHeld || f.policyPushed && p == f.policy {
		return
	}
	f.policy, f.policyPushed = p, true
	if err := f.plane.SetPolicy(p); err != nil {
		f.fail(fmt.Errorf("writing the routing policy into the data plane: %w", err))
	}
}

// tickIPsec looks for IPsec policies. The programs would bypass them, so a family that has any is left to the kernel.
func (f *feed) tickIPsec() {
	counts, err := countIPsec()
	if err != nil {
		f.once("ipsec", "IPsec policies could not be counted: those known before stay in force", "err", err)
		return
	}
	if counts == f.ipsecCounts && f.now()-f.ipsecListed < ipsecEvery {
		return
	}
	f.ipsecCounts, f.ipsecListed = counts, f.now()
	found := counts != [3]uint32{}
	f.ipsec4 = found && hasIPsec(f.rtnl, unix.AF_INET)
	f.ipsec6 = found && hasIPsec(f.rtnl, unix.AF_INET6)
	f.setPolicy()
}

// countIPsec returns the number of IPsec policies for each direction. Listing them all would take long.
func countIPsec() (counts [3]uint32, err error) {
	// The request is a word of flags. The answer repeats it before its attributes.
	const flagsSize, attrInfo = 4, 1 // XFRMA_SPD_INFO
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETSPDINFO, 0)
	req.AddRawData(make([]byte, flagsSize))
	answers, err := req.Execute(unix.NETLINK_XFRM, nl.XFRM_MSG_NEWSPDINFO)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return counts, nil // a kernel without IPsec
	case err != nil:
		return counts, fmt.Errorf("counting IPsec policies: %w", err)
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

// hasIPsec reports whether a family has IPsec policies. The caller has counted some, so an error counts as yes.
func hasIPsec(h *netlink.Handle, family int) bool {
	policies, err := h.XfrmPolicyList(family)
	return err != nil || len(policies) > 0
}
