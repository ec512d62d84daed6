// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/lb/lbplane"
	"culvert/internal/testbed"
)

// The cost of culvert's load balancer is measured with packets of the kind that the row is about, and its ring changes without
// losing a packet.
func TestLBCosts(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	r, err := Scenario().Measure(t.Context(), options(scenario.CostGroup))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if !row.Valid || row.Note == "" {
			t.Errorf("row %+v", row)
		}
		if row.Name == "lb-ring@cost" {
			if changes := row.Samples["change_ms"]; len(changes) != 3 || row.Received == 0 || row.Received != row.Sent || len(row.Lost) > 0 {
				t.Errorf("%v changes, row %+v", changes, row)
			}
			continue
		}
		fresh := costChecked + 3*costRepeat
		want := map[string]int{"lb-cold@cost": 20_000, "lb-new@cost": fresh, "lb-over-limit@cost": fresh}[row.Name]
		if want == 0 {
			want = clients
		}
		if row.NsPerPacket == nil || row.Frames != want || row.FrameSize < frameLen {
			t.Errorf("row %+v", row)
		}
	}
	want := []string{
		"lb-known@cost", "lb-known-gue@cost", "lb-known-l2@cost", "lb-known6@cost", "lb-cold@cost", "lb-new@cost", "lb-over-limit@cost",
		"lb-ring@cost",
	}
	if !slices.Equal(names, want) {
		t.Errorf("rows %v, want %v", names, want)
	}
}

// Check fails if packets are not of the kind that the row is about.
func TestLBCostsOfOtherPackets(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for name, d := range map[string]*costDevice{
		"new ones that come twice": {clients: 10, fresh: true, culvert: culvert{insertRate: unlimited}},
		"more than are taken in":   {clients: 40_000, culvert: culvert{insertRate: 1}},
		"fewer than the limit":     {clients: 10_000, fresh: true, over: true, culvert: culvert{insertRate: unlimited}},
		"known ones above it":      {clients: 10, over: true, culvert: culvert{insertRate: unlimited}},
	} {
		t.Run(name, func(t *testing.T) {
			row := &scenario.VethRow{Device: d, Opts: scenario.VethOptions{CPU: load.LastCPU()}}
			s, err := row.Subject(t.Context())
			if err == nil {
				_, err = load.Cost(t.Context(), load.CostOptions{Rounds: 1, Repeat: 100, Checked: 1, CPU: load.LastCPU()}, s)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Check(); err == nil || !strings.Contains(err.Error(), "not those that are to be measured") {
				t.Errorf("error %v", err)
			}
			if err := row.Teardown(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A row fails in Setup if its packets do not arrive in the form that the row is about.
func TestCulvertThatBalancesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	before := arrivals[lbplane.IPIP]
	arrivals[lbplane.IPIP] = arrivesInUDP
	defer func() { arrivals[lbplane.IPIP] = before }()
	row := newRow(culvertRow(t), &group{flows: clients, cores: 1}, scenario.Options{})
	if err := row.Setup(t.Context()); err == nil || !strings.Contains(err.Error(), "no other packet") {
		t.Errorf("error %v", err)
	}
	if err := row.Teardown(); err != nil {
		t.Error(err)
	}
}

func culvertRow(t *testing.T) peer.Candidate {
	t.Helper()
	i := slices.IndexFunc(candidates(), func(c peer.Candidate) bool { return c.Name == rowCulvert })
	if i < 0 {
		t.Fatal("culvert has no row")
	}
	return candidates()[i]
}

// A note says that flows of a flood were not taken into the flow table. There is no note about known flows.
func TestCulvertNotesFlows(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, tc := range []struct {
		g    *group
		rate int
		want string
	}{
		{&group{name: "syn", flows: endless, syn: true, cores: 1}, 1, "not taken into the flow table"},
		{&group{name: "million", flows: 30_000, cores: 1}, 0, ""},
		{&group{name: "known", flows: clients, cores: 1}, 0, ""},
	} {
		c := culvertRow(t)
		c.Device = func(peer.DeviceOptions) peer.Device {
			return &balancer{culvert{encap: lbplane.IPIP, insertRate: tc.rate}}
		}
		row := newRow(c, tc.g, scenario.Options{})
		err := row.Setup(t.Context())
		var s scenario.Sample
		// A busy machine loses some of the packets that are to make flows known, and these are known once rounds have come to them.
		const most = 200
		for n := 0; err == nil && (n < 2 || tc.want == "" && s.Note != "" && n < most); n++ {
			s, err = row.Run(t.Context(), scenario.ShortestRound)
		}
		if err != nil {
			t.Error(err)
		}
		if s.Received == 0 || tc.want == "" != (s.Note == "") || !strings.Contains(s.Note, tc.want) {
			t.Errorf("%s: %+v", tc.g.name, s)
		}
		if err := row.Teardown(); err != nil {
			t.Error(err)
		}
	}
}

// IPv6 packets have the right addresses and ports, and valid checksums.
func TestLBPackets6(t *testing.T) {
	for i := range uint32(100) {
		f := makePacket(clientAddr6(i), false)
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		ip, isIP := p.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
		tcp, isTCP := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if p.ErrorLayer() != nil || !isIP || !isTCP || len(tcp.Payload) != 0 || !tcp.ACK || tcp.SYN {
			t.Fatalf("packet %d: %v", i, p)
		}
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		if err, sum := tcp.VerifyChecksum(); err != nil || !sum.Valid {
			t.Errorf("packet %d: checksum %+v, error %v", i, sum, err)
		}
		if want := clientAddr6(i); ip.SrcIP.String() != want.Addr().String() || uint16(tcp.SrcPort) != want.Port() ||
			ip.DstIP.String() != vip6.Addr().String() {
			t.Errorf("packet %d: %v", i, p)
		}
	}
}
