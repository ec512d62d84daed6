// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// TestTC adds filters at ingress and egress of a device, and at another device, which does not count.
func TestTC(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add tc0 type veth peer name tc1\nip link set tc0 up\nip link set tc1 up")
	on := func(want ...Finding) {
		t.Helper()
		found, err := FindOn([]string{"tc0"})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, found, want...)
	}
	on()
	sh(t, "tc qdisc add dev tc0 clsact\ntc qdisc add dev tc1 clsact")
	on() // a qdisc alone does not count
	sh(t, "tc filter add dev tc1 ingress protocol ip u32 match u32 0 0 flowid 1:1")
	on()
	sh(t, "tc filter add dev tc0 ingress protocol ip u32 match u32 0 0 flowid 1:1")
	in := Finding{Backend: TC, Chain: "ingress", Hook: "ingress", Devices: []string{"tc0"}, Rules: 1}
	on(in)
	if in.String() != "tc ingress on tc0 (1 filter)" {
		t.Errorf("shown as %q", in)
	}
	sh(t, in.Show())
	sh(t, "tc filter del dev tc0 ingress") // tc lists u32 filters of one side at both
	sh(t, "tc filter add dev tc0 egress protocol ip u32 match u32 0 0 flowid 1:1")
	on(Finding{Backend: TC, Chain: "egress", Hook: "egress", Devices: []string{"tc0"}, Rules: 1})
	sh(t, "tc qdisc del dev tc0 clsact")
	on()
}

// TestTCX attaches a program that tc does not list.
func TestTCX(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link add tc0 type veth peer name tc1")
	prog := program(t, ebpf.SchedCLS, ebpf.AttachNone)
	l, err := link.AttachTCX(link.TCXOptions{Interface: index(t, "tc0"), Program: prog, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	found, err := FindOn([]string{"tc0"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, found, Finding{Backend: TCX, Chain: "ingress", Hook: "ingress", Devices: []string{"tc0"}, Rules: 1})
}

// TestNetfilterProgram attaches an eBPF program to a hook.
func TestNetfilterProgram(t *testing.T) {
	inNamespace(t)
	prog := program(t, ebpf.Netfilter, ebpf.AttachNetfilter)
	l, err := link.AttachNetfilter(link.NetfilterOptions{
		Program: prog, ProtocolFamily: link.NetfilterProtoIPv4, Hook: link.NetfilterInetForward, Priority: -128,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	here := func() bool {
		found, err := Programs()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found, func(f Finding) bool {
			return f.Backend == BPF && f.Family == "ip" && f.Hook == "forward" && f.Chain == "forward program "+fmtID(id)
		})
	}
	if !here() {
		t.Error("not found")
	}
	l.Close()
	if here() {
		t.Error("found after it has gone")
	}
}

// TestIPVS reads text in the kernel's format (net/netfilter/ipvs/ip_vs_ctl.c).
func TestIPVS(t *testing.T) {
	const head = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n" +
		"  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	for text, want := range map[string][]Finding{
		head: nil,
		head + "TCP  C0000201:0050 wlc  \n  -> 0A000002:0050      Masq    1      0          0         \n" +
			"FWM  00000001 rr \n": {{Backend: IPVS, Rules: 2}},
	} {
		found, err := findIPVS(file(t, text))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, found, want...)
	}
	if found, err := findIPVS("/no/such/file"); err != nil || found != nil {
		t.Errorf("without IPVS: %v, %v", found, err)
	}
}

// program loads a program that lets everything pass.
func program(t *testing.T, typ ebpf.ProgramType, attach ebpf.AttachType) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: typ, AttachType: attach, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func fmtID(id ebpf.ProgramID) string { return fmt.Sprint(uint32(id)) }

func index(t *testing.T, name string) int {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}
