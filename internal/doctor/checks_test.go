// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/host/trust"
)

// want is the finding that a test wants.
type want struct {
	status Status
	// finding is a part of the sentence.
	finding string
	// command is the whole command.
	command string
}

func (w want) check(t *testing.T, f *Finding) {
	t.Helper()
	if f == nil {
		t.Fatalf("no finding, want %v %q", w.status, w.finding)
	}
	if f.Status != w.status || !strings.Contains(f.Finding, w.finding) || f.Command != w.command {
		t.Errorf("got  %v %q -> %q\nwant %v %q -> %q", f.Status, f.Finding, f.Command, w.status, w.finding, w.command)
	}
}

func TestHostChecks(t *testing.T) {
	all := uint64(0)
	for _, c := range wantedCapabilities {
		all |= 1 << c.bit
	}
	lacking := func(names ...string) featureSet {
		set := featureSet{probed: len(wantedFeatures)}
		for _, f := range wantedFeatures {
			for _, n := range names {
				if f.name == n {
					set.missing = append(set.missing, f)
				}
			}
		}
		return set
	}
	const newKernel = "apt-get install -t bookworm-backports linux-image-amd64 && reboot"
	tests := []struct {
		name string
		got  Finding
		want want
	}{
		{"all features", checkKernel("6.12.1", featureSet{probed: 13}), want{OK, "6.12.1 has the 13 features", ""}},
		{"old kernel", checkKernel("5.10.0", lacking("bpf_ktime_get_tai_ns")),
			want{Fail, "5.10.0 lacks bpf_ktime_get_tai_ns (since 6.1)", newKernel}},
		{"no BTF", checkKernel("6.1.0", lacking("BTF")), want{Fail, "lacks BTF", newKernel}},
		{"features cannot be probed", checkKernel("6.1.0", featureSet{unknown: unix.EPERM}),
			want{Warn, "cannot be probed: operation not permitted", "sudo culvert doctor"}},

		{"root", checkPrivileges(all), want{OK, "all capabilities", ""}},
		{"nobody", checkPrivileges(0), want{Fail, "CAP_BPF", "sudo culvert doctor"}},
		{"no CAP_SYS_ADMIN", checkPrivileges(all &^ (1 << unix.CAP_SYS_ADMIN)),
			want{Warn, "missing CAP_SYS_ADMIN", "sudo culvert doctor"}},

		{"compiled", checkJIT(true, nil), want{OK, "machine code", ""}},
		{"interpreted", checkJIT(false, nil), want{Fail, "interpreted", "sysctl -w net.core.bpf_jit_enable=1"}},
		{"not loadable", checkJIT(false, unix.EPERM), want{Warn, "operation not permitted", "sudo culvert doctor"}},

		{"statistics off", checkBPFStats("0"), want{OK, "off", ""}},
		{"statistics on", checkBPFStats("1"), want{Warn, "on", "sysctl -w kernel.bpf_stats_enabled=0"}},

		{"bpffs", checkPinFS(pinFS{path: "/sys/fs/bpf"}), want{OK, "mounted at /sys/fs/bpf", ""}},
		{"bpffs read-only", checkPinFS(pinFS{path: "/sys/fs/bpf", readOnly: true}),
			want{Fail, "read-only", "mount -o remount,rw /sys/fs/bpf"}},
		{"bpffs that everybody may write to", checkPinFS(pinFS{path: "/sys/fs/bpf",
			untrusted: &trust.Error{Finding: "others than root may write to /sys/fs/bpf (mode 1777)", Command: "chmod go-w /sys/fs/bpf"}}),
			want{Fail, "(mode 1777): culvert trusts no pin", "chmod go-w /sys/fs/bpf"}},
		{"bpffs hidden", checkPinFS(pinFS{path: "/proc/7/root/sys/fs/bpf", supported: true}), want{OK, "through /proc/7/root", ""}},
		{"bpffs hidden, read-only", checkPinFS(pinFS{path: "/proc/7/root/sys/fs/bpf", readOnly: true}),
			want{Fail, "read-only", "on the host: mount -o remount,rw /sys/fs/bpf"}},
		{"bpffs not mounted", checkPinFS(pinFS{supported: true, mountable: true}), want{OK, "culvert mounts it", ""}},
		{"bpffs not mounted, without the privilege", checkPinFS(pinFS{supported: true}),
			want{Fail, "cannot mount it", "sudo mount -t bpf -o mode=0700 bpf /sys/fs/bpf"}},
		{"no bpffs", checkPinFS(pinFS{}), want{Fail, "cannot be pinned", ""}},

		{"clock", checkClock(clock{tai: 37 * time.Second, synchronised: true, maxError: 1500 * time.Microsecond}),
			want{OK, "synchronised within 2ms (TAI offset 37s)", ""}},
		{"clock not synchronised", checkClock(clock{}), want{Warn, "not synchronised", "timedatectl set-ntp true"}},
		{"no forwarding, no IP router", checkForwarding("0", "", false, false), want{OK, "IPv4 off, IPv6 absent", ""}},
		{"no forwarding, a SCION router", checkForwarding("0", "", false, true), want{OK, "IPv4 off, IPv6 absent; the SCION router needs neither", ""}},
		{"forwarding of IPv4 only", checkForwarding("1", "0", true, false), want{Warn, "IPv4 on, IPv6 off", "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"}},
		{"forwarding of both families", checkForwarding("1", "1", true, true), want{OK, "IPv4 on, IPv6 on", ""}},

		{"no route", checkNeighbor(neighbor{addr: netip.MustParseAddr("192.0.2.1"), noRoute: errors.New("no way")}),
			want{Fail, "no route to 192.0.2.1: no way", "ip route add 192.0.2.1 via GATEWAY"}},
		{"own address", checkNeighbor(neighbor{addr: netip.MustParseAddr("192.0.2.1"), local: true}),
			want{OK, "of this host", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, &tt.got) })
	}
}

func TestShortLinks(t *testing.T) {
	if found := checkShort(nil); len(found) != 0 {
		t.Errorf("%v without a short link", found)
	}
	const begin, end = "link 2: its mtu is 1472 in topology.json, and the way to 192.0.2.2 takes packets of ",
		" at both ends"
	for _, c := range []struct {
		longest  int
		fragment bool
		status   Status
		words    string
	}{
		{1422, false, Warn, "1422 bytes: longer ones are dropped, and answered with packet too big; make the MTU of the way larger by 50, or write mtu = 1422"},
		{1352, false, Fail, "1352 bytes: longer ones are dropped, and answered with packet too big, those of the control services too: " +
			"take too_big = \"answer\" out of [scion]; make the MTU of the way larger by 120, or write mtu = 1352"},
		{1352, true, Warn, "1352 bytes: longer ones are sent in IP fragments; make the MTU of the way larger by 120, or write mtu = 1352"},
	} {
		found := checkShort([]ShortLink{{Link: "2", Remote: netip.MustParseAddr("192.0.2.2"), Topology: 1472, Longest: c.longest, Fragment: c.fragment}})
		if len(found) != 1 || found[0].Status != c.status || found[0].Check != "link-mtu" || found[0].Finding != begin+c.words+end {
			t.Errorf("%v, want %v %s", found, c.status, begin+c.words+end)
		}
	}
}

func TestMixedInterfaces(t *testing.T) {
	if found := checkMixed(""); len(found) != 0 {
		t.Errorf("without interfaces: %+v", found)
	}
	if found := checkMixed("eth1,eth2"); len(found) != 1 || found[0].Status != Warn || !strings.HasPrefix(found[0].Finding, "eth1,eth2: ") {
		t.Errorf("found %+v", found)
	}
}

func TestStrays(t *testing.T) {
	if found := checkStrays([]Stray{{Interface: "eth1", Router: "br1", Packets: 3}}); len(found) != 1 || found[0].Status != Warn ||
		found[0].Interface != "eth1" || found[0].Check != "link-interface" || !strings.Contains(found[0].Finding, "router br1 is dropping") {
		t.Errorf("found %+v", found)
	}
}

// TestNoMemlockHint wants no word of the limit of locked memory, which the eBPF library adds to an EPERM.
func TestNoMemlockHint(t *testing.T) {
	f := checkJIT(false, fmt.Errorf("load program: %w (MEMLOCK may be too low)", unix.EPERM))
	if !strings.HasSuffix(f.Finding, "failed: operation not permitted") {
		t.Errorf("finding is %q", f.Finding)
	}
}

func TestInterfaceChecks(t *testing.T) {
	const nativeActs = netdev.ActBasic | netdev.ActRedirect
	native := xdpSupport{known: true, acts: nativeActs}
	on, fixed := offload{on: true}, offload{on: true, fixed: true}
	here := &peer{index: 3, seen: true, name: "p0", up: true, mtu: 1500, offloads: offloads{}}
	away := &peer{index: 3, seen: true, name: "p0", enter: "ip netns exec blue ", up: true, mtu: 1500,
		offloads: offloads{"rx-gro": on, "tx-checksum-ip-generic": on}}
	hidden := &peer{index: 7}
	forwarding := Options{}.stages()
	generic := Stages{Route: true, Generic: true}
	inNative := program{mode: "xdp", pin: "/sys/fs/bpf/culvert/1/br/link-e0"}
	inGeneric := &program{mode: "xdpgeneric", pin: inNative.pin}

	tests := []struct {
		name  string
		check func(netif) *Finding
		facts netif
		want  want
	}{
		{"up", checkUp, netif{up: true, carrier: true}, want{OK, "up", ""}},
		{"no carrier", checkUp, netif{up: true}, want{Warn, "no carrier", ""}},
		{"down", checkUp, netif{name: "e0", carrier: true}, want{Fail, "down", "ip link set dev e0 up"}},

		{"native", checkNative, netif{driver: "ice", xdp: native}, want{OK, "ice runs XDP", ""}},
		{"native by list", checkNative, netif{driver: "ice"}, want{OK, "ice is known to run XDP", ""}},
		{"not native", checkNative, netif{name: "e0", driver: "r8169", xdp: xdpSupport{known: true}},
			want{Fail, "r8169 does not run XDP", `culvert run -c FILE, with mode = "generic" in FILE`}},
		{"no Ethernet header, generic mode", checkNative, netif{name: "tun0", driver: "tun", noEthernet: true, stages: generic},
			want{Fail, "packets have no Ethernet header", ""}},
		{"not in the list", checkNative, netif{name: "e0", driver: "r8169"},
			want{Fail, "r8169 does not run XDP", `culvert run -c FILE, with mode = "generic" in FILE`}},
		{"reported by the kernel, and in the list", checkNative, netif{name: "e0", driver: "ice", xdp: xdpSupport{known: true}},
			want{Fail, "ice does not run XDP", `culvert run -c FILE, with mode = "generic" in FILE`}},
		{"VLAN device", checkNative, netif{name: "e0.5", kind: "vlan", driver: "802.1Q VLAN Support", parent: "e0"},
			want{Fail, "attach to e0", "culvert doctor -i e0"}},
		{"veth with too few queues", checkNative,
			netif{kind: "veth", xdp: xdpSupport{known: true}, queues: netdev.Channels{RX: 1}, peer: away},
			want{Fail, "fewer receive queues", "ip netns exec blue ethtool -L p0 tx 1"}},

		{"not native, generic mode", checkNative, netif{name: "e0", driver: "e1000e", xdp: xdpSupport{known: true}, stages: generic},
			want{OK, "generic mode: the kernel runs XDP, whatever e1000e does", ""}},
		{"not native, attached in generic mode", checkNative, netif{name: "e0", driver: "e1000e", program: inGeneric}, want{OK, "generic mode", ""}},
		{"attached in native mode, a file in generic mode", checkNative, netif{driver: "ice", xdp: native, program: &inNative, stages: generic},
			want{OK, "ice runs XDP in the driver", ""}},
		{"VLAN device, generic mode", checkNative, netif{name: "e0.5", kind: "vlan", driver: "802.1Q VLAN Support", parent: "e0", stages: generic},
			want{OK, "generic mode", ""}},
		{"veth with too few queues, generic mode", checkNative, netif{kind: "veth", xdp: xdpSupport{known: true}, peer: away, stages: generic},
			want{OK, "generic mode", ""}},
		{"member of a bond that is attached in generic mode", checkNative,
			netif{driver: "e1000e", xdp: xdpSupport{known: true}, above: &netif{program: inGeneric}}, want{OK, "generic mode", ""}},

		{"no program", checkProgram, netif{}, want{OK, "no XDP program", ""}},
		{"culvert's program", checkProgram, netif{program: &program{id: 5, name: "rx", mode: "xdp", link: 9, pin: "/sys/fs/bpf/culvert/1/br/link-e0"}}, want{OK, "culvert is attached", ""}},
		{"other program", checkProgram, netif{name: "e0", program: &program{id: 5, name: "xdp_pass", mode: "xdpgeneric"}},
			want{Fail, "carries the XDP program xdp_pass (xdpgeneric, program 5)", "ip link set dev e0 xdpgeneric off"}},
		{"other program, pinned", checkProgram,
			netif{program: &program{id: 5, name: "rx", mode: "xdp", link: 9, pin: "/sys/fs/bpf/culvertish/l"}},
			want{Fail, "carries the XDP program rx", "rm /sys/fs/bpf/culvertish/l"}},
		{"other program, held by a process", checkProgram,
			netif{name: "e0", program: &program{id: 5, name: "x", mode: "xdp", link: 9, holders: []string{"xdpd[1]"}}},
			want{Fail, "held by xdpd[1]", "bpftool link detach id 9"}},

		{"MTU in one buffer", checkMTU, netif{mtu: maxOneBuffer}, want{OK, "3498 bytes", ""}},
		{"MTU, multi-buffer", checkMTU, netif{mtu: 9000, xdp: xdpSupport{known: true, acts: nativeActs | netdev.ActRxSG}},
			want{OK, "multi-buffer", ""}},
		{"MTU, multi-buffer by list", checkMTU, netif{mtu: 9000, driver: "mlx5_core"}, want{OK, "multi-buffer", ""}},
		{"MTU, multi-buffer, not redirected", checkMTU, netif{name: "e0", mtu: 9000, driver: "mlx5_core", forwards: true},
			want{Warn, "redirects no frames of several buffers", "ip link set dev e0 mtu 3498"}},
		{"MTU too large", checkMTU, netif{name: "e0", mtu: maxOneBuffer + 1, driver: "igb", xdp: native},
			want{Fail, "igb takes no multi-buffer programs", "ip link set dev e0 mtu 3498"}},
		{"MTU too large for this one", checkMTU, netif{name: "e0", mtu: 3498, driver: "vmxnet3", xdp: native},
			want{Fail, "XDP needs 3494 or less", "ip link set dev e0 mtu 3494"}},
		{"MTU of the peer too large", checkMTU,
			netif{name: "v0", mtu: 1500, xdp: native, peer: &peer{seen: true, name: "p0", mtu: 9000}},
			want{Fail, "9000 bytes", "ip link set dev p0 mtu 3498"}},

		{"MTU too large, generic mode", checkMTU, netif{name: "e0", mtu: 9000, driver: "e1000e", xdp: xdpSupport{known: true}, stages: generic},
			want{OK, "9000 bytes, more than one buffer: generic mode takes them", ""}},
		{"MTU too large, attached in generic mode", checkMTU, netif{name: "e0", mtu: 9000, driver: "igb", xdp: native, program: inGeneric, forwards: true},
			want{OK, "generic mode takes them", ""}},
		{"MTU of the peer too large, generic mode", checkMTU,
			netif{mtu: 1500, driver: "veth", xdp: native, peer: &peer{seen: true, name: "p0", mtu: 9000}, stages: generic}, want{OK, "9000 bytes", ""}},
		{"MTU of a tap", checkMTU, netif{name: "t0", mtu: 9000, driver: "tun", xdp: native, forwards: true},
			want{OK, "the kernel runs XDP itself on frames that tun cannot give it in one", ""}},
		{"MTU of a tap, kernels that do not say", checkMTU, netif{name: "t0", mtu: 9000, driver: "tun", forwards: true}, want{OK, "9000 bytes", ""}},

		{"queues", checkQueues, netif{queues: netdev.Channels{RX: 4, RXMax: 4}, cpus: 4}, want{OK, "4 receive for 4 CPUs", ""}},
		{"queues and who serves them", checkQueues, netif{queues: netdev.Channels{RX: 2, RXMax: 2}, cpus: 2, served: ", hashes spread 50 50 %, interrupts 24 on CPU 0 25 on CPU 1"},
			want{OK, "2 receive for 2 CPUs, hashes spread 50 50 %, interrupts 24 on CPU 0 25 on CPU 1", ""}},
		{"few queues", checkQueues, netif{name: "e0", queues: netdev.Channels{RX: 1, RXMax: 8, Combined: true}, cpus: 4},
			want{Warn, "1 receive for 4 CPUs", "ethtool -L e0 combined 4"}},
		{"few receive queues", checkQueues, netif{name: "e0", queues: netdev.Channels{RX: 1, RXMax: 2}, cpus: 4},
			want{Warn, "stay idle", "ethtool -L e0 rx 2"}},
		{"no more queues", checkQueues, netif{queues: netdev.Channels{RX: 1, RXMax: 1}, cpus: 4}, want{OK, "all that the device has", ""}},

		{"half of the queues", checkQueues, netif{name: "e0", driver: "ena", queues: netdev.Channels{RX: 2, RXMax: 8, Combined: true}, cpus: 8},
			want{Warn, "stay idle", "ethtool -L e0 combined 4"}},
		{"half is all", checkQueues, netif{name: "e0", driver: "ena", queues: netdev.Channels{RX: 4, RXMax: 8, Combined: true}, cpus: 8},
			want{OK, "all that XDP can have of 8", ""}},
		{"more than half", checkQueues, netif{name: "e0", driver: "ena", queues: netdev.Channels{RX: 8, RXMax: 8, Combined: true}, cpus: 8},
			want{Fail, "ena runs XDP with at most half of its queues, and 8 of 8 are in use", "ethtool -L e0 combined 4"}},
		{"more than half, and no XDP", checkNative, netif{name: "e0", driver: "ena", queues: netdev.Channels{RX: 8, RXMax: 8}, xdp: xdpSupport{known: true}},
			want{Fail, "not with so many queues", ""}},
		{"more than half, not in pairs", checkQueues, netif{name: "e0", driver: "gve", queues: netdev.Channels{RX: 16, RXMax: 16}, cpus: 16},
			want{Fail, "at most half", "ethtool -L e0 rx 8 tx 8"}},
		{"more than half, generic mode", checkQueues, netif{name: "e0", driver: "ena", queues: netdev.Channels{RX: 8, RXMax: 8, Combined: true}, cpus: 8, stages: generic},
			want{OK, "8 receive for 8 CPUs", ""}},
		{"few queues, generic mode", checkQueues, netif{name: "e0", driver: "gve", queues: netdev.Channels{RX: 2, RXMax: 8, Combined: true}, cpus: 8, stages: generic},
			want{Warn, "stay idle", "ethtool -L e0 combined 8"}},
		{"no queue beside, generic mode", checkQueues, netif{driver: "virtio_net", queues: netdev.Channels{RX: 2, RXMax: 2, Combined: true}, cpus: 2, stages: generic},
			want{OK, "2 receive for 2 CPUs", ""}},
		{"one queue", checkQueues, netif{name: "e0", driver: "gve", queues: netdev.Channels{RX: 1, RXMax: 1}, cpus: 1},
			want{Fail, "1 of 1 are in use: only the hypervisor", ""}},
		{"a queue for each CPU beside", checkQueues, netif{name: "e0", driver: "virtio_net", queues: netdev.Channels{RX: 2, RXMax: 4, Combined: true}, cpus: 2},
			want{OK, "2 receive for 2 CPUs", ""}},
		{"no queue beside", checkQueues, netif{name: "e0", driver: "virtio_net", queues: netdev.Channels{RX: 1, RXMax: 1, Combined: true}, cpus: 2},
			want{Warn, "wait for one lock a queue: only the hypervisor can give the device 3 queue pairs", ""}},
		{"attached virtio", checkQueues, netif{
			name: "e0", driver: "virtio_net", queues: netdev.Channels{RX: 1, RXMax: 8, Combined: true}, cpus: 4, program: &program{mode: "xdp"},
		}, want{Warn, "stay idle", "culvert detach e0 && ethtool -L e0 combined 4"}},

		{"no merging", checkMerging, netif{offloads: offloads{"rx-gro": on}}, want{OK, "off", ""}},
		{"LRO", checkMerging, netif{name: "e0", offloads: offloads{"rx-lro": on}}, want{Warn, "lro on", "ethtool -K e0 lro off"}},
		{"LRO, attached natively", checkMerging, netif{name: "e0", offloads: offloads{"rx-lro": on}, program: &program{mode: "xdp"}},
			want{Warn, "lro on: XDP sees merged packets", "ethtool -K e0 lro off"}},
		{"native beside LRO", checkNative, netif{driver: "x", offloads: offloads{"rx-lro": on}, xdp: native},
			want{OK, "x runs XDP in the driver, unless merging keeps it from that: see below", ""}},
		{"native beside LRO, attached", checkNative, netif{driver: "x", offloads: offloads{"rx-lro": on}, xdp: native, program: &program{mode: "xdp"}},
			want{OK, "x runs XDP in the driver", ""}},
		{"LRO and hardware GRO", checkMerging, netif{name: "e0", offloads: offloads{"rx-lro": on, "rx-gro-hw": on}},
			want{Warn, "lro and rx-gro-hw on", "ethtool -K e0 lro off rx-gro-hw off"}},
		{"hardware GRO, fixed", checkMerging, netif{name: "e0", offloads: offloads{"rx-gro-hw": fixed}},
			want{Warn, "only the hypervisor", ""}},
		{"hardware GRO of virtio_net", checkMerging, netif{name: "e0", driver: "virtio_net", offloads: offloads{"rx-gro-hw": on}},
			want{OK, "rx-gro-hw on: virtio_net turns it off by itself", ""}},
		{"hardware GRO of virtio_net, attached", checkMerging, netif{name: "e0", driver: "virtio_net", offloads: offloads{"rx-gro-hw": on}, program: &inNative},
			want{OK, "by itself while a program is attached", ""}},
		{"hardware GRO of virtio_net, fixed", checkMerging, netif{name: "e0", driver: "virtio_net", offloads: offloads{"rx-gro-hw": fixed}},
			want{Warn, "some drivers refuse XDP then, and others show it merged packets; only the hypervisor", ""}},
		{"native beside hardware GRO of virtio_net", checkNative, netif{driver: "virtio_net", offloads: offloads{"rx-gro-hw": on}, xdp: native},
			want{OK, "virtio_net runs XDP in the driver", ""}},

		{"in a bridge", checkBridge, netif{bridge: "br0", stages: Stages{LB: true}}, want{OK, "port of the bridge br0", ""}},
		{"in a bridge, with an IP router", checkBridge, netif{name: "e0", bridge: "br0", stages: Stages{Route: true}},
			want{Warn, "the IP router leaves what comes in by it to the kernel", "ip link set dev e0 nomaster"}},

		{"tags reach XDP", checkVLAN, netif{vlans: []string{"e0.5"}}, want{OK, "e0.5", ""}},
		{"tags taken off", checkVLAN, netif{name: "e0", vlans: []string{"e0.5"}, offloads: offloads{"rx-vlan-hw-parse": on}},
			want{Warn, "taken off", "ethtool -K e0 rxvlan off"}},
		{"tags taken off, forwarding", checkVLAN, netif{name: "e0", forwards: true, offloads: offloads{"rx-vlan-hw-parse": on}},
			want{Fail, "forwarded as untagged", "ethtool -K e0 rxvlan off"}},
		{"tags taken off, a filter", checkVLAN, netif{name: "e0", vlans: []string{"e0.5"}, stages: Stages{Filter: true}, offloads: offloads{"rx-vlan-hw-parse": on}},
			want{Fail, "rules would take", "ethtool -K e0 rxvlan off"}},
		{"tags beside the frame", checkVLAN, netif{name: "v0", forwards: true, vlans: []string{"v0.5"}, offloads: offloads{"rx-vlan-hw-parse": on},
			peer: &peer{seen: true, name: "v1", offloads: offloads{"tx-vlan-hw-insert": on}}},
			want{Warn, "taken off", "ethtool -K v1 txvlan off"}},
		{"a veth's tags", checkVLAN, netif{name: "v0", forwards: true, vlans: []string{"v0.5"}, offloads: offloads{"rx-vlan-hw-parse": on},
			peer: &peer{seen: true, name: "v1"}}, want{Status(0), "reach XDP", ""}},

		{"rp_filter off", checkSourceFilter, netif{rpFilter: "0"}, want{OK, "off", ""}},
		{"rp_filter loose", checkSourceFilter, netif{rpFilter: "2"}, want{OK, "loose", ""}},
		{"rp_filter strict", checkSourceFilter, netif{name: "e0", rpFilter: "1"},
			want{Warn, "strict", "sysctl -w net.ipv4.conf.e0.rp_filter=2"}},

		{"NAPI on", checkPeerNAPI, netif{stages: forwarding, up: true, carrier: true, peer: hidden, xdp: xdpSupport{known: true, acts: netdev.ActXmit}},
			want{OK, "arrive", ""}},
		{"NAPI off", checkPeerNAPI, netif{stages: forwarding, up: true, carrier: true, peer: here, xdp: native}, want{Fail, "peer p0 has NAPI off", "ethtool -K p0 gro on"}},
		{"NAPI off, a filter alone", checkPeerNAPI, netif{stages: Stages{Filter: true}, up: true, carrier: true, peer: here, xdp: native},
			want{OK, "no stage that is on redirects frames into it", ""}},
		{"NAPI off, a filter that answers SYNs", checkPeerNAPI, netif{stages: Stages{Filter: true, SYN: true}, up: true, carrier: true, peer: here, xdp: native},
			want{Fail, "NAPI off: the filter's answers to SYNs (filter-synack) are lost", "ethtool -K p0 gro on"}},
		{"NAPI off, an IP router alone", checkPeerNAPI, netif{stages: Stages{Route: true}, up: true, carrier: true, peer: here, xdp: native},
			want{Fail, "NAPI off: the IP router leaves them to the kernel (route-egress)", "ethtool -K p0 gro on"}},
		{"NAPI off, a load balancer and a filter", checkPeerNAPI, netif{stages: Stages{LB: true, Filter: true}, up: true, carrier: true, peer: here, xdp: native},
			want{Fail, "NAPI off: the load balancer drops them (lb-next-hop)", "ethtool -K p0 gro on"}},
		{"NAPI off, peer hidden", checkPeerNAPI, netif{stages: forwarding, up: true, carrier: true, peer: hidden, xdp: native},
			want{Fail, "cannot be seen from here", "in the peer's namespace: ethtool -K PEER gro on"}},
		{"NAPI unknown, peer hidden", checkPeerNAPI, netif{stages: forwarding, up: true, carrier: true, peer: hidden},
			want{Warn, "if GRO is off", "in the peer's namespace: ethtool -K PEER gro on"}},
		{"NAPI by GRO of the peer", checkPeerNAPI, netif{stages: forwarding, up: true, carrier: true, peer: away}, want{OK, "arrive", ""}},
		{"NAPI off, generic mode", checkPeerNAPI, netif{stages: Stages{Route: true, Generic: true}, up: true, carrier: true, peer: here, xdp: native},
			want{OK, "arrive: generic mode", ""}},
		{"NAPI unknown, generic mode", checkPeerNAPI, netif{stages: Stages{Route: true, Generic: true}, up: true, carrier: true, peer: hidden},
			want{OK, "arrive: generic mode", ""}},
		{"peer down, generic mode", checkPeerNAPI, netif{stages: Stages{Route: true, Generic: true}, up: true, peer: &peer{seen: true, name: "p0"}},
			want{Fail, "peer p0 is down", "ip link set dev p0 up"}},
		{"peer down", checkPeerNAPI, netif{stages: forwarding, up: true, peer: &peer{seen: true, name: "p0"}, xdp: native},
			want{Fail, "peer p0 is down", "ip link set dev p0 up"}},

		{"checksum", checkChecksum, netif{peer: here, offloads: offloads{}}, want{OK, "whole checksums", ""}},
		{"checksum, rx on", checkChecksum, netif{peer: here, offloads: offloads{"rx-checksum": on}}, want{OK, "rx offload is on", ""}},
		{"checksum offload", checkChecksum, netif{name: "v0", peer: here, offloads: offloads{"tx-checksum-ip-generic": on}},
			want{Warn, "unfinished", "ethtool -K v0 tx off"}},
		{"peer's checksum", checkPeerChecksum, netif{peer: here}, want{OK, "whole checksums", ""}},
		{"peer's checksum offload", checkPeerChecksum, netif{peer: away},
			want{Warn, "unfinished", "ip netns exec blue ethtool -K p0 tx off"}},
		{"peer's checksum, peer hidden", checkPeerChecksum, netif{peer: hidden},
			want{Warn, "ifindex 7", "in the peer's namespace: ethtool -K PEER tx off"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, tt.check(tt.facts)) })
	}
}

// TestNoFinding has an interface to which some checks do not apply.
func TestNoFinding(t *testing.T) {
	hardware := netif{name: "e0", kind: "device", driver: "ice", up: true}
	for name, check := range map[string]func(netif) *Finding{
		"queues": checkQueues, "merging": checkMerging, "vlan": checkVLAN, "napi": checkPeerNAPI,
		"checksum": checkChecksum, "peer checksum": checkPeerChecksum, "unfinished": checkUnfinished, "rp_filter": checkSourceFilter,
	} {
		if f := check(hardware); f != nil {
			t.Errorf("%s: got %+v, want no finding", name, *f)
		}
	}
}

func TestReport(t *testing.T) {
	var r Report
	r.add(Finding{Check: "kernel", Finding: "fine"}, Finding{Status: Warn, Check: "mtu", Interface: "eth0", Finding: "odd"},
		Finding{Status: Fail, Check: "link", Interface: "eth0", Finding: "down", Command: "ip link set dev eth0 up"})
	var table, object strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	wantTable := "" +
		"ok    host  kernel  fine\n" +
		"warn  eth0  mtu     odd\n" +
		"FAIL  eth0  link    down\n" +
		"                    -> ip link set dev eth0 up\n" +
		"\n1 ok, 1 warn, 1 FAIL\n"
	if table.String() != wantTable {
		t.Errorf("table:\n%s\nwant:\n%s", table.String(), wantTable)
	}
	if err := r.WriteJSON(&object); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"status": "FAIL"`, `"command": "ip link set dev eth0 up"`, `"fail": 1`} {
		if !strings.Contains(object.String(), part) {
			t.Errorf("JSON lacks %s:\n%s", part, object.String())
		}
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "1 of 3 checks failed") {
		t.Errorf("Err() = %v", err)
	}
	if err := (&Report{Warn: 1}).Err(); err != nil {
		t.Errorf("a warning is no failure: %v", err)
	}
}
