// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"culvert/internal/host/netdev"
)

// maxOneBuffer is the largest MTU, in bytes of the IP packet, with which the frame, the headroom of XDP and the kernel's
// skb_shared_info fit into one page of 4 KiB. Drivers differ by a few bytes. This is the smallest of their limits.
const maxOneBuffer = 3498

// nativeDrivers lists the drivers that run XDP themselves, for kernels before 6.3, which do not report it. The value tells
// whether the driver takes multi-buffer programs.
var nativeDrivers = map[string]bool{
	"atlantic": true, "bnxt_en": true, "dpaa_eth": false, "ena": false, "fsl_dpaa2_eth": false,
	"fsl_enetc": true, "gve": false, "hv_netvsc": false, "i40e": false, "ice": false, "igb": false,
	"igc": false, "ixgbe": false, "ixgbevf": false, "mlx4_en": false, "mlx5_core": true,
	"mvneta": true, "mvpp2": false, "nfp": false, "qede": false, "rvu-nicpf": false, "sfc": false,
	"st_gmac": false, "ti-cpsw": false, "tun": false, "veth": true, "vif": false,
	"virtio_net": false,
}

// useGeneric is the command for what does not run XDP in a driver.
const useGeneric = `culvert run -c FILE, with mode = "generic" in FILE`

// oneBuffer has the drivers with another limit than maxOneBuffer: vmxnet3 counts the checksum of the frame.
var oneBuffer = map[string]int{"vmxnet3": 3494}

func checkUp(n netif) *Finding {
	if n.up && n.carrier {
		return &Finding{Check: "link", Finding: "up"}
	}
	if n.up {
		return &Finding{Status: Warn, Check: "link", Finding: "no carrier: nothing comes in or goes out"}
	}
	return &Finding{Status: Fail, Check: "link", Finding: "down", Command: "ip link set dev " + n.name + " up"}
}

// checkNative looks whether the driver runs XDP itself. In generic mode it does not have to.
func checkNative(n netif) *Finding {
	f := &Finding{Check: "native"}
	_, listed := nativeDrivers[n.driver]
	switch {
	case n.noEthernet:
		f.Status = Fail
		f.Finding = "packets have no Ethernet header, and culvert is not attached to such interfaces: attach to the one by which they come in encapsulated"
	case n.generic():
		f.Finding = "generic mode: the kernel runs XDP, whatever " + n.driver + " does"
	case n.xdp.known && n.xdp.can(netdev.ActBasic|netdev.ActRedirect):
		f.Finding = n.driver + " runs XDP in the driver" + n.unlessMerging()
	case !n.xdp.known && listed:
		f.Finding = n.driver + " is known to run XDP in the driver" + n.unlessMerging()
	case n.kind == "veth":
		f.Status = Fail
		f.Finding = "fewer receive queues than the peer has transmit queues: the kernel refuses XDP"
		f.Command = n.peer.command("ethtool -L %s tx " + fmt.Sprint(max(n.queues.RX, 1)))
	case n.parent != "":
		f.Status = Fail
		f.Finding = fmt.Sprintf("a %s device does not run XDP: attach to %s below it", n.kind, n.parent)
		f.Command = "culvert doctor -i " + n.parent
	case n.tooManyQueues():
		f.Status = Fail
		f.Finding = n.driver + " runs XDP in the driver, but not with so many queues: see below"
	default:
		f.Status = Fail
		f.Finding = n.driver + " does not run XDP in the driver: only generic mode, several times slower, is left"
		f.Command = useGeneric
	}
	return f
}

func (n netif) tooManyQueues() bool {
	wrong, _ := n.queues.TooManyForXDP(n.name, n.driver)
	return wrong != ""
}

// checkProgram looks for an XDP program that culvert has not attached. An interface carries one program at most.
func checkProgram(n netif) *Finding {
	f := &Finding{Check: "program"}
	p := n.program
	switch {
	case p == nil:
		f.Finding = "no XDP program attached"
		return f
	case p.ours():
		f.Finding = fmt.Sprintf("culvert is attached (%s, program %d)", p.mode, p.id)
		return f
	}
	name := p.name
	if name == "" {
		name = "whose name is not known"
	}
	f.Status = Fail
	f.Finding = fmt.Sprintf("carries the XDP program %s (%s, program %d)", name, p.mode, p.id)
	if p.holders != nil {
		f.Finding += ", held by " + strings.Join(p.holders, ", ")
	}
	switch {
	case p.link == 0:
		f.Command = fmt.Sprintf("ip link set dev %s %s off", n.name, p.mode)
	case p.pin != "" && p.holders == nil:
		f.Command = "rm " + p.pin
	default:
		f.Command = fmt.Sprintf("bpftool link detach id %d", p.link)
	}
	return f
}

// checkMTU compares the MTU with what one buffer holds. For a veth the kernel compares the peer's MTU.
func checkMTU(n netif) *Finding {
	mtu := n.mtu
	if n.peer != nil {
		mtu = max(mtu, n.peer.mtu)
	}
	f := &Finding{Check: "mtu", Finding: fmt.Sprintf("%d bytes", mtu)}
	most, ok := oneBuffer[n.driver]
	if !ok {
		most = maxOneBuffer
	}
	if mtu <= most {
		return f
	}
	switch {
	case n.generic():
		f.Finding += ", more than one buffer: generic mode takes them, and may leave frames of several buffers to the kernel"
		return f
	case n.driver == "tun":
		f.Finding += ", more than one buffer: the kernel runs XDP itself on frames that " + n.driver + " cannot give it in one"
		return f
	}
	multiBuffer := n.xdp.can(netdev.ActRxSG)
	if !n.xdp.known {
		multiBuffer = nativeDrivers[n.driver]
	}
	if multiBuffer {
		f.Finding += ", more than one buffer: the driver takes multi-buffer programs"
		if !n.xdp.known && n.forwards { // netdev.Egress
			f.Status = Warn
			f.Finding += ", but Linux before 6.3 redirects no frames of several buffers: the kernel gets those, and those for backends are dropped"
			f.Command = fmt.Sprintf("ip link set dev %s mtu %d", n.name, most)
		}
		return f
	}
	f.Status = Fail
	f.Finding += fmt.Sprintf(", and %s takes no multi-buffer programs: XDP needs %d or less", n.driver, most)
	f.Command = fmt.Sprintf("ip link set dev %s mtu %d", n.name, most)
	if n.peer != nil && n.peer.mtu > maxOneBuffer {
		f.Command = n.peer.command("ip link set dev %s mtu " + fmt.Sprint(maxOneBuffer))
	}
	return f
}

// checkQueues compares the number of receive queues with that of CPUs, and with what the driver needs to transmit for XDP. One CPU at
// a time serves a queue.
func checkQueues(n netif) *Finding {
	q := n.queues
	if q.RX == 0 {
		return nil
	}
	f := &Finding{Check: "queues", Finding: fmt.Sprintf("%d receive for %d CPUs%s", q.RX, n.cpus, n.served)}
	most := q.RXMax
	if !n.generic() {
		most = q.MostForXDP(n.driver)
	}
	if wrong, command := q.TooManyForXDP(n.name, n.driver); wrong != "" && !n.generic() {
		f.Status, f.Finding, f.Command = Fail, wrong, command
		return f
	}
	// A veth uses as many receive queues as its peer has transmit queues. More would stay empty.
	if n.kind == "veth" {
		return f
	}
	switch {
	case q.RX >= n.cpus:
	case most <= q.RX && most < q.RXMax:
		f.Finding += fmt.Sprintf(", all that XDP can have of %d", q.RXMax)
	case most <= q.RX:
		f.Finding += ", all that the device has"
	default:
		f.Status = Warn
		f.Finding += ": the other CPUs stay idle"
		f.Command = n.detachFirst() + q.Set(n.name, min(n.cpus, most))
	}
	if short := n.sharedTransmit(); short != "" {
		f.Status = Warn
		f.Finding += "; " + short
	}
	return f
}

// detachFirst is what has to come before a command that the driver refuses while a program is attached, "" if none is.
func (n netif) detachFirst() string {
	if n.driver != "virtio_net" || !n.native() {
		return ""
	}
	return "culvert detach " + n.name + " && "
}

// sharedTransmit says whether redirected frames wait for a lock, because a virtio_net device has no queue of its own for each CPU. It
// returns "" otherwise.
func (n netif) sharedTransmit() string {
	if n.driver != "virtio_net" || n.generic() || n.queues.RX+n.cpus <= n.queues.RXMax {
		return ""
	}
	return fmt.Sprintf("redirected frames of all CPUs wait for one lock a queue: only the hypervisor can give the device %d queue pairs, "+
		"one more for each CPU", n.queues.RX+n.cpus)
}

// merging returns the options of ethtool that are on and merge several packets into one, and whether one of them cannot be
// turned off.
func (n netif) merging() (on []string, fixed bool) {
	for _, o := range []struct{ name, option string }{{"rx-lro", "lro"}, {"rx-gro-hw", "rx-gro-hw"}} {
		if n.offloads[o.name].on {
			on = append(on, o.option)
			fixed = fixed || n.offloads[o.name].fixed
		}
	}
	return on, fixed
}

// native tells whether an XDP program is attached in the driver, which therefore has not refused it.
func (n netif) native() bool { return n.program != nil && n.program.mode == "xdp" }

// generic tells whether culvert runs on it in generic mode, or will.
func (n netif) generic() bool {
	if n.above != nil {
		return n.above.generic()
	}
	if n.program != nil && n.program.ours() {
		return n.program.mode == "xdpgeneric"
	}
	return n.stages.Generic
}

// unlessMerging is what follows a finding that the driver runs XDP.
func (n netif) unlessMerging() string {
	if on, _ := n.merging(); len(on) > 0 && !n.native() && !n.stopsMerging() {
		return ", unless merging keeps it from that: see below"
	}
	return ""
}

// stopsMerging tells whether the driver turns by itself off what merges, while a program is attached. virtio_net does, if the hypervisor
// lets it: then the guest may change the offload too.
func (n netif) stopsMerging() bool {
	_, fixed := n.merging()
	return n.driver == "virtio_net" && !fixed && !n.generic()
}

// checkMerging looks for offloads that merge several packets into one: LRO and hardware GRO.
func checkMerging(n netif) *Finding {
	if n.offloads == nil {
		return nil
	}
	on, fixed := n.merging()
	if on == nil {
		return &Finding{Check: "merging", Finding: "LRO and hardware GRO are off"}
	}
	if n.stopsMerging() {
		return &Finding{Check: "merging", Finding: strings.Join(on, " and ") + " on: " + n.driver + " turns it off by itself while a program is attached"}
	}
	f := &Finding{
		Status: Warn, Check: "merging",
		Finding: strings.Join(on, " and ") + " on: some drivers refuse XDP then, and others show it merged packets",
	}
	if n.native() {
		f.Finding = strings.Join(on, " and ") + " on: XDP sees merged packets"
	}
	if fixed {
		f.Finding += "; only the hypervisor or the firmware of the device can turn it off"
		return f
	}
	f.Command = fmt.Sprintf("ethtool -K %s %s off", n.name, strings.Join(on, " off "))
	return f
}

// checkBridge looks whether the interface is a port of a bridge, which takes its packets. The IP router leaves them to it.
func checkBridge(n netif) *Finding {
	if n.bridge == "" {
		return nil
	}
	f := &Finding{Check: "bridge", Finding: "port of the bridge " + n.bridge}
	if n.stages.Route {
		f.Status = Warn
		f.Finding += ": the IP router leaves what comes in by it to the kernel, and redirects nothing to it"
		f.Command = "ip link set dev " + n.name + " nomaster"
	}
	return f
}

// checkVLAN looks for VLAN tags that the device takes off before XDP sees the frame. XDP would then take a tagged packet for
// one of the untagged network: nothing that forwards is attached then, and no filter if there are VLAN devices. A veth takes no tags off,
// but its peer may pass them beside the frame.
func checkVLAN(n netif) *Finding {
	taken := n.offloads["rx-vlan-hw-parse"].on
	command := "ethtool -K " + n.name + " rxvlan off"
	if n.peer != nil {
		taken = n.peer.offloads["tx-vlan-hw-insert"].on
		command = n.peer.command("ethtool -K %s txvlan off")
	}
	of := strings.Join(n.vlans, ", ")
	switch {
	case taken && n.forwards && n.peer == nil:
		return &Finding{
			Status: Fail, Check: "vlan", Command: command,
			Finding: "VLAN tags are taken off before XDP sees the frame: packets of VLANs would be forwarded as untagged ones",
		}
	case of == "":
		return nil
	case taken && n.stages.Filter && n.peer == nil:
		return &Finding{
			Status: Fail, Check: "vlan", Command: command,
			Finding: "tags of " + of + " are taken off before XDP sees the frame: rules would take their packets for untagged ones",
		}
	case taken:
		return &Finding{Status: Warn, Check: "vlan", Finding: "tags of " + of + " are taken off before XDP sees the frame", Command: command}
	}
	return &Finding{Check: "vlan", Finding: "tags reach XDP (" + of + ")"}
}

// checkSourceFilter warns of a strict rp_filter, which applies to packets that XDP passes to the slow path.
func checkSourceFilter(n netif) *Finding {
	f := &Finding{Check: "rp_filter"}
	switch n.rpFilter {
	case "":
		return nil
	case "1":
		f.Status = Warn
		f.Finding = "strict: the slow path loses packets whose reverse path is by another interface"
		f.Command = "sysctl -w net.ipv4.conf." + n.name + ".rp_filter=2"
	case "2":
		f.Finding = "loose"
	default:
		f.Finding = "off"
	}
	return f
}
