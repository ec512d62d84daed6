// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net"
	"testing"

	"culvert/internal/capture/trace"
)

// The frame of a flow is what the programs read as a packet of it.
func TestFlowFrame(t *testing.T) {
	own := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	for text, protocol := range map[string]uint8{
		"198.51.100.7:40000 192.0.2.1:80 tcp":         trace.TCP,
		"198.51.100.7:40000 192.0.2.1:53 udp":         trace.UDP,
		"[2001:db8::7]:40000 [2001:db8::1]:443 tcp":   trace.TCP,
		"[2001:db8::7]:40000 [2001:db8:1::1]:443 udp": trace.UDP,
	} {
		f, err := flowIn(text)
		if err != nil || f == nil {
			t.Fatalf("%s: %v", text, err)
		}
		frame, err := f.frame(own)
		if err != nil {
			t.Fatal(err)
		}
		p, err := trace.Parse(trace.Frame{Data: frame, Length: len(frame)}, [6]byte(own))
		if err != nil || !p.Ports || p.NoForward || p.From() != f.from || p.To() != f.to || p.Protocol != protocol || p.UDP != (protocol == trace.UDP) {
			t.Errorf("%s: %v, %+v", text, err, p)
		}
	}
	for _, bad := range []string{"x 192.0.2.1:80 tcp", "192.0.2.7:1 [2001:db8::1]:80 tcp", "192.0.2.7:1 192.0.2.1:80 icmp"} {
		if f, err := flowIn(bad); err == nil {
			t.Errorf("%s: %+v", bad, f)
		}
	}
	if f, err := flowIn("192.0.2.1:80/tcp"); f != nil || err != nil {
		t.Errorf("a VIP is a flow: %+v, %v", f, err)
	}
}
