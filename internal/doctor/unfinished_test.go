// SPDX-License-Identifier: Apache-2.0

package doctor

import "testing"

// TestUnfinished has devices with and without checksums that nobody finishes.
func TestUnfinished(t *testing.T) {
	generic := Stages{Route: true, Generic: true}
	from := []string{"vm0", "vm1", "vm2", "vm3"}
	tx := offloads{"tx-checksum-ip-generic": {on: true}}
	const sender = "where the packets are sent: ethtool -K DEV tx off"
	for _, tt := range []struct {
		name  string
		facts netif
		want  *want
	}{
		{"a machine, native", netif{driver: "tun", fromMachines: true, stages: Stages{Route: true}}, &want{Warn, "and are forwarded, with unfinished", sender}},
		{"a machine, a filter alone", netif{driver: "tun", fromMachines: true, stages: Stages{Filter: true}}, nil},
		{"a machine, generic", netif{driver: "tun", fromMachines: true, stages: generic, offloads: tx}, nil},
		{"a tap without machine", netif{driver: "tun", stages: Stages{Route: true}}, nil},
		{"tx off, generic", netif{name: "e0", driver: "e1000e", stages: generic, leaveSums: from},
			&want{Warn, "by vm0, vm1, vm2, leave so in generic mode", "ethtool -K e0 tx on"}},
		{"tx on, generic", netif{driver: "e1000e", stages: generic, leaveSums: from, offloads: tx}, nil},
		{"tx off, generic, nothing that leaves sums", netif{driver: "e1000e", stages: generic}, nil},
		{"tx off, generic, a filter alone", netif{driver: "e1000e", stages: Stages{Filter: true, Generic: true}, leaveSums: from}, nil},
		{"tx off, native", netif{driver: "ice", stages: Stages{Route: true}, leaveSums: from}, nil},
		{"a tap, generic", netif{driver: "tun", stages: generic, leaveSums: from}, &want{Warn, "tx offload is off", sender}},
		{"a veth", netif{driver: "veth", peer: &peer{}, stages: generic, leaveSums: from}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := checkUnfinished(tt.facts)
			if tt.want == nil {
				if f != nil {
					t.Errorf("got %+v, want no finding", *f)
				}
				return
			}
			tt.want.check(t, f)
		})
	}
}

// TestUnfinishedTaps has doctor look at taps, one of them as virtual machines have it.
func TestUnfinishedTaps(t *testing.T) {
	inNamespace(t)
	sh(t, `ip tuntap add vm mode tap vnet_hdr
		ip tuntap add plain mode tap
		ip link set vm up
		ip link set plain up`)
	for _, tt := range []struct {
		device string
		stages Stages
		warns  bool
	}{
		{"vm", Stages{Route: true}, true}, {"plain", Stages{Route: true}, false}, {"vm", Stages{Filter: true}, false},
		{"plain", Stages{Route: true, Generic: true}, true}, {"plain", Stages{Filter: true, Generic: true}, false},
	} {
		r, err := Run(Options{Interfaces: []string{tt.device}, Stages: tt.stages})
		if err != nil {
			t.Fatal(err)
		}
		warns := false
		for _, f := range r.Findings {
			warns = warns || f.Interface == tt.device && f.Check == "checksum" && f.Status == Warn
		}
		if warns != tt.warns {
			t.Errorf("%s with %+v: a warning %v, want %v", tt.device, tt.stages, warns, tt.warns)
		}
	}
}
