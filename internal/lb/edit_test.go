// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/lb/lbplane"
)

// TestStoredState pins what later processes read. Another key needs another stateVersion in lbplane.
func TestStoredState(t *testing.T) {
	s := State{
		Source4: netip.MustParsePrefix("10.200.0.0/16"), Source6: netip.MustParsePrefix("fd00::/64"),
		VIPs: []VIP{{
			Service: Service{Addr: netip.MustParseAddr("192.0.2.1"), Port: 443, Protocol: UDP}, Hash: HashFlow, OnFailure: FailKeep,
			Encap: EncapIPIP, ServerID: 1, IDConfig: 2, VLANs: []uint16{20}, Drained: true, File: true, Number: 3,
			Check: &Check{
				Type: "http", Port: 80, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 2,
				Path: "/", Host: "h", Status: "200", Send: "s", Expect: "e",
			},
			Backends: []Backend{{
				Addr: netip.MustParseAddr("10.0.0.11"), Encap: EncapGUE, GUEPort: GUEPort, Weight: 4, Drained: true, ServerID: "0a",
				File: true, ID: lbplane.NewBackendID(5, 1),
			}},
		}},
		Generations: map[uint32]uint32{5: 1}, Unfinished: true,
	}
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"source4":"10.200.0.0/16","source6":"fd00::/64","vips":[{` +
		`"service":{"addr":"192.0.2.1","port":443,"protocol":17},"hash":"flow","on_failure":"keep","encapsulation":"ipip",` +
		`"quic_server_id":1,"quic_config":2,"check":{"type":"http","port":80,"interval":1000000000,"timeout":1000000000,` +
		`"rise":1,"fall":2,"path":"/","host":"h","status":"200","send":"s","expect":"e"},"vlans":[20],"drained":true,"file":true,` +
		`"backends":[{"addr":"10.0.0.11","encapsulation":"gue","gue_port":6080,"weight":4,"drained":true,"server_id":"0a",` +
		`"file":true,"id":1048581}],"number":3}],"generations":{"5":1},"unfinished":true}`
	if string(got) != want {
		t.Errorf("stored\n%s, want\n%s\nraise stateVersion of lbplane", got, want)
	}
}

// TestMergeDrained wants weight 0 of the file to say the same as the weight of a drained backend made by hand, as in a dump.
func TestMergeDrained(t *testing.T) {
	with := func(weight uint32, drained bool) State {
		return State{VIPs: []VIP{{
			Service:  Service{Addr: netip.MustParseAddr("192.0.2.1"), Protocol: TCP},
			Backends: []Backend{{Addr: netip.MustParseAddr("10.0.0.11"), Weight: weight, Drained: drained}},
		}}}
	}
	for _, tt := range []struct {
		running State
		weight  uint32
		ok      bool
	}{{with(4, true), 0, true}, {with(4, true), 4, true}, {with(4, true), 3, false}, {with(4, false), 0, false}, {with(0, false), 0, true}} {
		merged, err := Merge(tt.running, with(tt.weight, false))
		if (err == nil) != tt.ok {
			t.Errorf("%+v beside weight %d: error %v", tt.running, tt.weight, err)
			continue
		}
		if b := tt.running.VIPs[0].Backends[0]; err == nil && (merged.VIPs[0].Backends[0].Drained != b.Drained || merged.VIPs[0].Backends[0].Weight != tt.weight) {
			t.Errorf("%+v beside weight %d: got %+v", tt.running, tt.weight, merged)
		}
	}
}
