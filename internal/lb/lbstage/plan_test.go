// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/config"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/stage"
)

const (
	lbHead    = "interfaces = [\"a\"]\n[lb]\n"
	lbVIP     = "[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\n"
	lbBackend = "[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n"
	lbBGP     = "[lb.bgp]\nasn = 65001\nrouter_id = \"10.0.0.1\"\n"
	neighbor  = "[[lb.bgp.neighbor]]\naddress = \"10.0.0.9\"\nasn = 65000\n"
)

func compile(t *testing.T, text string) (*Plan, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := config.Load(path, []config.Part{
		{Name: Stage{}.Name(), New: Stage{}.Table}, {Name: filterstage.Stage{}.Name(), New: filterstage.Stage{}.Table},
	})
	if err != nil {
		t.Fatal(err)
	}
	return Compile(stage.File{Path: path, Node: n})
}

// TestCompileErrors wants errors of an [lb] table with their position.
func TestCompileErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"flows = -1\n", "c.toml:2:2: [lb]: -1 flows in the flow table"},
		{"udp_timeout = \"soon\"\n", "c.toml:3:15: udp_timeout = \"soon\" is not a duration: write it as 500ms"},
		{"tcp_timeout = \"10h\"\n", "c.toml:2:2: [lb]: idle time of TCP of 10h0m0s"},
		{"source4 = \"here\"\n", "c.toml:3:11: source4 = \"here\": use a prefix"},
		{"source4 = \"fd00::/64\"\n", "c.toml:3:11: source4 = \"fd00::/64\": it is of the other family"},
		{strings.Replace(lbVIP, "\"tcp\"", "\"sctp\"", 1), "c.toml:5:12: VIP 192.0.2.1:80: \"sctp\" is no protocol of a VIP"},
		{strings.Replace(lbVIP, ":80", ":0", 1), "c.toml:4:11: \"192.0.2.1:0\" has port 0"},
		{"unclaimed = \"ignore\"\n", "c.toml:3:13: unclaimed = \"ignore\": use reject, drop or pass"},
		{lbVIP + "vlans = [100, 0]\n", "c.toml:6:1: VIP 192.0.2.1:80/tcp: VLAN 0: use 1 to 4094"},
		{lbVIP + "vlans = [100, 4095]\n", "c.toml:6:1: VIP 192.0.2.1:80/tcp: VLAN 4095: use 1 to 4094"},
		{lbVIP + "vlans = [100, 100]\n", "c.toml:6:1: VIP 192.0.2.1:80/tcp: VLAN 100 is there twice"},
		{lbVIP + lbVIP, "c.toml:7:11: VIP 192.0.2.1:80/tcp: it is there twice"},
		{lbVIP + "hash = \"x\"\n", "c.toml:6:8: VIP 192.0.2.1:80/tcp: hash \"x\": use flow, source or source-port"},
		{lbVIP + "quic_server_id = 999\n", "c.toml:6:18: VIP 192.0.2.1:80/tcp: quic_server_id 999 is out of range"},
		{lbVIP + "quic_server_id = 2\n", "c.toml:6:18: VIP 192.0.2.1:80/tcp: quic_server_id goes with UDP"},
		{lbVIP + "[lb.vip.check]\ntype = \"icmp\"\n", "c.toml:6:2: VIP 192.0.2.1:80/tcp: type \"icmp\" of check"},
		{lbVIP + "[lb.vip.check]\ntype = \"tcp\"\nrise = 0\n", "c.toml:6:2: VIP 192.0.2.1:80/tcp: rise 0 of check: use 1 to"},
		{lbVIP + "[lb.vip.check]\ntype = \"tcp\"\ninterval = \"0s\"\n", "c.toml:8:12: VIP 192.0.2.1:80/tcp: interval = \"0s\" is too short: write a time above 0, as 500ms"},
		{lbVIP + "[lb.vip.check]\ntype = \"tcp\"\ninterval = \"1\"\n", "c.toml:8:12: VIP 192.0.2.1:80/tcp: interval = \"1\" is not a duration"},
		{lbVIP + "[lb.vip.check]\ntype = \"tcp\"\ntimeout = \"2s\"\n", "c.toml:6:2: VIP 192.0.2.1:80/tcp: timeout 2s of check: use 10ms to its interval of 1s"},
		{lbVIP + strings.Replace(lbBackend, "11", "11:80", 1), "c.toml:7:11: VIP 192.0.2.1:80/tcp: \"10.0.0.11:80\" is no address of a backend: write it without a port, as 10.0.0.11"},
		{lbVIP + strings.Replace(lbBackend, "10.0.0.11", "10.0.0.999", 1), "c.toml:7:11: VIP 192.0.2.1:80/tcp: \"10.0.0.999\" is no IP address: write a backend's as"},
		{lbVIP + lbBackend + "weight = -1\n", "c.toml:8:10: VIP 192.0.2.1:80/tcp: backend 10.0.0.11: weight -1: use 0 to 65535"},
		{lbVIP + lbBackend + lbBackend, "c.toml:9:11: VIP 192.0.2.1:80/tcp: backend 10.0.0.11: it is there twice"},
		{lbVIP + strings.Replace(lbBackend, "10.0.0.11", "fd00::1", 1) + "encapsulation = \"l2\"\n",
			"c.toml:8:17: VIP 192.0.2.1:80/tcp: backend fd00::1: l2 cannot reach a backend of another family"},
		{"vips = 1\n" + lbVIP + strings.Replace(lbVIP, "tcp", "udp", 1), "c.toml:7:3: VIP 192.0.2.1:80/udp: one VIP more than the 1 there is room for: set lb.vips"},
		{lbBGP + "hold_time = \"1s\"\n" + neighbor, "c.toml:3:2: BGP: hold time 1s"},
		{lbBGP + "graceful_restart = \"4096s\"\n" + neighbor, "c.toml:6:20: graceful_restart = \"4096s\": write whole seconds up to 4095, as 60s, or 0s for none"},
		{lbBGP + "graceful_restart = \"1500ms\"\n" + neighbor, "c.toml:6:20: graceful_restart = \"1500ms\""},
		{lbBGP + "graceful_restart = \"-1s\"\n" + neighbor, "c.toml:6:20: graceful_restart = \"-1s\""},
		{lbBGP + "graceful_restart = \"60\"\n" + neighbor, "c.toml:6:20: graceful_restart = \"60\""},
		{lbBGP + "communities = [\"no\"]\n" + neighbor, "c.toml:6:1: \"no\" is no community: write it as 65001:100"},
		{lbBGP + neighbor + neighbor, "c.toml:3:2: BGP neighbor 10.0.0.9: it is there twice"},
	} {
		_, err := compile(t, lbHead+tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
}

// TestCompile reads configurations and checks options, VIPs and BGP.
func TestCompile(t *testing.T) {
	for _, text := range []string{"", "graceful_restart = \"0s\"\n"} {
		if p, err := compile(t, lbHead+lbBGP+text+neighbor); err != nil || p.bgp.GracefulRestart != 0 {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	for text, want := range map[string]lbplane.Unclaimed{
		"": lbplane.Reject, "reject": lbplane.Reject, "drop": lbplane.Drop, "pass": lbplane.Pass,
	} {
		line := ""
		if text != "" {
			line = "unclaimed = \"" + text + "\"\n"
		}
		p, err := compile(t, lbHead+line+lbVIP+"vlans = [100, 200]\n")
		if err != nil || p.options.Unclaimed != want || !slices.Equal(p.state.VIPs[0].VLANs, []uint16{100, 200}) {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	p, err := compile(t, lbHead+"seed = \"x\"\nsource6 = \"fd00::1\"\nudp_timeout = \"90s\"\n"+lbVIP+"encapsulation = \"gue\"\n"+
		"[lb.vip.check]\ntype = \"http\"\nrise = 3\ninterval = \"2s\"\n"+lbBackend+strings.Replace(lbBackend, "11", "12", 1)+"encapsulation = \"l2\"\nweight = 0\n"+
		lbBGP+"communities = [\"65001:100\"]\nhold_time = \"30s\"\ngraceful_restart = \"4095s\"\n"+neighbor)
	if err != nil {
		t.Fatal(err)
	}
	v := p.state.VIPs[0]
	if v.Hash != lb.HashFlow || v.OnFailure != lb.FailKeep || v.Check.Rise != 3 || v.Check.Fall != 2 || v.Check.Interval != 2*time.Second {
		t.Errorf("got %+v", v)
	}
	if a, b := v.Backends[0], v.Backends[1]; a.Encap != "gue" || a.GUEPort != 6080 || a.Weight != 1 || b.Encap != "l2" || b.GUEPort != 0 || b.Weight != 0 {
		t.Errorf("got %+v and %+v", a, b)
	}
	other, err := compile(t, lbHead)
	if err != nil {
		t.Fatal(err)
	}
	if p.options.IdleUDP != 90*time.Second || p.state.Source6.Bits() != 128 {
		t.Errorf("got %+v", p.options)
	}
	if p.bgp.Communities[0] != 65001<<16|100 || p.bgp.HoldTime != 30*time.Second || p.bgp.GracefulRestart != 4095*time.Second || other.bgp != nil {
		t.Errorf("got %+v", p.bgp)
	}
}

// TestSourceWithoutLength wants an error for an address without a prefix length that looks like a network.
func TestSourceWithoutLength(t *testing.T) {
	for text, want := range map[string]string{
		"10.200.0.0": "write 10.200.0.0/32 for that one", "fd00:200::": "write fd00:200::/128 for that one",
		"10.200.0.7": "", "10.200.0.0/32": "", "10.200.0.0/16": "",
	} {
		_, err := parseSource(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
