// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// tool runs one of SCION's programs and wants texts in its output.
func tool(t *testing.T, l *lab.Lab, ns string, argv []string, texts ...string) {
	t.Helper()
	out, err := l.Run(t.Context(), ns, argv...)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("%s in %s does not say %q:\n%s", strings.Join(argv, " "), ns, text, out)
		}
	}
}

const (
	pings = 5
	// pingSize is in bytes. No packet of the control plane is in its size class.
	pingSize  = 5000
	pingClass = 7 // 4096 to 8191 bytes
)

func ping(t *testing.T, l *lab.Lab, from, to string, size int) {
	t.Helper()
	tool(t, l, from, []string{"scion", "ping", to, "-c", fmt.Sprint(pings), "--interval", "50ms", "-s", fmt.Sprint(size)},
		fmt.Sprintf("%d packets transmitted, %d received, 0%% packet loss", pings, pings))
}

// sent returns how many packets of pingSize a router's fast path has sent on a link, by traffic type.
func sent(t *testing.T, p *datapath.Instance, link string) [stats.TrafficTypes]uint64 {
	t.Helper()
	links, err := scionplane.Of(p).LinkCounters()
	check(t, err)
	var n [stats.TrafficTypes]uint64
	for typ := range n {
		n[typ] = links[linkIndex(t, p, link)].Out[typ][pingClass].Packets
	}
	return n
}

// TestTools runs SCION's programs through culvert in the middle and through culvert everywhere, and wants exactly their
// packets in the counters of the fast path.
func TestTools(t *testing.T) {
	all := map[string]lab.Router{"as1": lab.Culvert, "as2": lab.Culvert, "as3": lab.Culvert}
	for name, o := range map[string]lab.Options{
		"culvert in the middle":                     {Name: "mid", MTU: 9000},
		"culvert everywhere, IPv6, segments switch": {Name: "all", MTU: 9000, IPv6: true, SegmentSwitch: true, Routers: all},
	} {
		t.Run(name, func(t *testing.T) {
			l := up(t, "scion3", o)
			loopback := "127.0.0.1"
			if o.IPv6 {
				loopback = "::1"
			}
			as3, err := l.AS("as3")
			check(t, err)
			host := "1-ff00:0:3," + as3.Host.String()
			tool(t, l, "as1", []string{"scion", "showpaths", "1-ff00:0:3", "--no-color"},
				"[1-ff00:0:1 102>201 1-ff00:0:2 203>302 1-ff00:0:3]", "alive")
			tool(t, l, "as1", []string{"scion", "traceroute", "1-ff00:0:3," + loopback},
				"IfID=102", "IfID=201", "IfID=203", "IfID=302")
			ping(t, l, "as1", "1-ff00:0:3,"+loopback, 100)
			// The first packets take the slow path, which resolves the hosts' neighbors.
			ping(t, l, "as1h", host, 100)

			middle := plane(t, l, "as2")
			towards3, towards1 := sent(t, middle, "203"), sent(t, middle, "201")
			delivered := map[string][stats.TrafficTypes]uint64{}
			for _, as := range []string{"as1", "as3"} {
				if o.Routers[as] == lab.Culvert {
					delivered[as] = sent(t, plane(t, l, as), "internal")
				}
			}
			ping(t, l, "as1h", host, pingSize)
			for link, before := range map[string][stats.TrafficTypes]uint64{"203": towards3, "201": towards1} {
				want := before
				want[stats.TrafficBRTransit] += pings
				if got := sent(t, middle, link); got != want {
					t.Errorf("as2 has sent %v of %d bytes by type on link %s, want %v", got, pingSize, link, want)
				}
			}
			for as, before := range delivered {
				want := before
				want[stats.TrafficIn] += pings
				if got := sent(t, plane(t, l, as), "internal"); got != want {
					t.Errorf("%s has delivered %v of %d bytes by type, want %v", as, got, pingSize, want)
				}
			}
			tooBigForPing(t, l, host)
		})
	}
}

// tooBigForPing has the link between AS 2 and AS 3 take shorter packets than the topology says. Longer ones still arrive. With
// too_big = "answer" the end host that sends longer ones is told by the router of AS 2, and shorter ones still arrive.
func tooBigForPing(t *testing.T, l *lab.Lab, host string) {
	t.Helper()
	for ns, name := range map[string]string{"as2": "to-as3", "as3": "to-as2"} {
		_, err := l.Run(t.Context(), ns, "ip", "link", "set", name, "mtu", "1500")
		check(t, err)
	}
	ping(t, l, "as1h", host, pingSize)
	config := nodeConfig(t, l, "as2")
	text, err := os.ReadFile(config)
	check(t, err)
	check(t, os.WriteFile(config, append(text, "too_big = 'answer'\n"...), 0o644))
	check(t, l.StopRouter("as2", syscall.SIGTERM))
	start(t, l, "as2", program(), "run", "-c", config)
	var out []byte
	wait(t, "scion ping to be told that its packets are too big", func() bool {
		// It fails, because there is no reply.
		out, _ = l.Run(t.Context(), "as1h", "scion", "ping", host, "-c", "1", "-s", fmt.Sprint(pingSize), "--timeout", "2s")
		return strings.Contains(string(out), "SCMPPacketTooBig")
	})
	if t.Failed() {
		t.Logf("%s", out)
	}
	ping(t, l, "as1h", host, 1000)
}

// TestSmallLinks has links that take shorter packets than QUIC's first ones, with culvert everywhere. As with the reference, beacons pass by
// default, without which there would be no path, and so do packets that are too big.
func TestSmallLinks(t *testing.T) {
	all := map[string]lab.Router{"as1": lab.Culvert, "as2": lab.Culvert, "as3": lab.Culvert}
	l := up(t, "scion3", lab.Options{Name: "small", MTU: smallMTU, Routers: all})
	ping(t, l, "as1", "1-ff00:0:3,127.0.0.1", 1400)
	for _, as := range []string{"as1", "as3"} {
		a, err := l.AS(as)
		check(t, err)
		series, err := scrape(l, as, a.RouterAPI.String(), "culvert_scion_too_big_packets_total")
		check(t, err)
		if text := strings.Join(series, "\n"); !hasCounted(text, "fragmented") || hasCounted(text, "answered") || hasCounted(text, "dropped") {
			t.Errorf("packets too big for a link of %s are not all sent in fragments:\n%s", as, text)
		}
	}
}

// hasCounted tells whether packets that were too big had an outcome, by the lines of their metric.
func hasCounted(series, outcome string) bool {
	for line := range strings.Lines(series) {
		if strings.Contains(line, `outcome="`+outcome+`"`) && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			return true
		}
	}
	return false
}
