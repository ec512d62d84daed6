// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
)

// DeviceOf is the device of a scenario's row.
func DeviceOf(t *testing.T, scenario, name string, o DeviceOptions) Device {
	t.Helper()
	for _, c := range CandidatesOf(scenario) {
		if c.Name == name {
			return c.Device(o)
		}
	}
	t.Fatalf("scenario %s has no row %s", scenario, name)
	return nil
}

// InstanceOf is culvert's data plane in a device, nil if it has none.
func InstanceOf(d Device) *datapath.Instance {
	switch d := d.(type) {
	case *Culvert:
		return d.inst
	case *culvertReference:
		return d.inst
	}
	return nil
}

// ForwardNothing turns IPv4 forwarding off in a namespace.
func ForwardNothing(s *load.Netns) error { return s.Do(func() error { return setForwarding("0") }) }

// TracerouteRequest is a packet that the router under test has to answer itself.
func TracerouteRequest(t *testing.T, p Path) []byte {
	t.Helper()
	r, err := benchRouter()
	if err != nil {
		t.Fatal(err)
	}
	segments := SCIONTraffic{}.segments(r, uint32(time.Now().Add(-time.Hour).Unix()), 0)
	segments[0].Hops[1].IngressAlert = true
	spec := scionpkt.Spec{
		Outer: scionpkt.Outer{
			DstMAC: [6]byte(p.In.MAC), SrcMAC: [6]byte(p.Source.MAC), Src: r.in.remote, Dst: r.in.local,
		},
		External: true,
		Key:      r.key,
		SrcIA:    r.in.ia,
		DstIA:    r.out.ia,
		SrcHost:  addr.HostIP(scionSink),
		DstHost:  addr.HostIP(scionSink),
		Segments: segments,
		CurrHF:   1,
		Payload:  scionpkt.Payload{Kind: scionpkt.TracerouteRequest, SrcPort: 1024, HopByHop: -1, EndToEnd: -1},
	}
	frame, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}
