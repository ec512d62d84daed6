// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/datapath"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
)

// culvert is the fast path under test: the program on all ports of a twin but one.
type culvert struct {
	t    *testing.T
	twin *twin
	inst *datapath.Instance
	// plane is its IP router.
	plane *routeplane.Plane
	// status is what the control plane reports. It is nil without one.
	status *route.Status
}

// attach attaches culvert to a twin's ports, with workers on the given CPUs. The thread stays in the router's namespace.
func attach(w *twin, o routeplane.Options, workers ...int) *culvert {
	t := w.t
	t.Helper()
	w.listen()
	return attachTo(w, o, workers...)
}

// attachTo is attach without programs at the far ends.
func attachTo(w *twin, o routeplane.Options, workers ...int) *culvert {
	t := w.t
	t.Helper()
	w.enter()
	var names []string
	for i := range xdpPorts {
		names = append(names, portName(i))
	}
	inst, err := datapath.Attach(datapath.Options{Temporary: true, Name: "judged", Interfaces: names,
		Workers: datapath.Workers{CPUs: workers}, Parts: []datapath.Part{routeplane.NewPart(o)}})
	check(t, err)
	t.Cleanup(inst.Close)
	plane, err := routeplane.Open(inst)
	check(t, err)
	t.Cleanup(plane.Close)
	c := &culvert{t: t, twin: w, inst: inst, plane: plane}
	c.unlimit()
	return c
}

// unlimit removes the rate limits of packets to the kernel. The limits rightly drop packets that the kernel would answer, but
// the test judges each packet by itself.
func (c *culvert) unlimit() {
	info, err := c.inst.Program().Info()
	check(c.t, err)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		check(c.t, err)
		info, err := m.Info()
		check(c.t, err)
		if info.Name == "limits" {
			for i := range m.MaxEntries() {
				check(c.t, m.Put(i, make([]byte, m.ValueSize())))
			}
		}
		m.Close()
	}
}

// fate runs the program on a packet, on a thread in the twin's namespace. Nothing is sent.
func (c *culvert) fate(p *packet, _ *outcome) fate {
	action, frame, err := c.inst.TestRunIndex(p.frame, c.twin.index[p.port])
	if err != nil {
		c.t.Fatalf("running %d bytes through the program: %v", len(p.frame), err)
	}
	return fate{action, frame}
}

// reasons returns the program's counters by verdict and reason.
func (c *culvert) reasons() map[string]uint64 {
	all, err := c.inst.Ports()
	check(c.t, err)
	sum := make(map[string]uint64)
	for _, p := range all {
		for _, r := range p.Reasons {
			sum[r.Verdict+" "+r.Name] += r.Packets
		}
	}
	return sum
}

// explain returns the route of a packet in the twin's kernel, and the reason that the program counts it under.
func (c *culvert) explain(p *packet) string {
	before := c.reasons()
	c.fate(p, nil)
	why := ""
	for name, n := range c.reasons() {
		if n != before[name] {
			why = name
		}
	}
	get := fmt.Sprintf("route get %v from %v iif %s", p.dst, p.src, portName(p.port))
	out, _ := exec.Command("ip", strings.Fields(get)...).CombinedOutput()
	match := fmt.Sprintf("route show table all match %v", p.dst)
	all, _ := exec.Command("ip", strings.Fields(match)...).CombinedOutput()
	says := ""
	if c.status != nil {
		says = fmt.Sprintf("%+v", c.status.Load())
	}
	return fmt.Sprintf("\n  reason  %s, flow %d %s\n%s%s", why, p.flow, says, out, all)
}

// describe writes what the program needs to know of its twin when it has no mirror, as the sysctls say. full and ruled say
// what sysctls do not: that the kernel checks IPv4 sources without rp_filter too, and that there are routing rules.
func (c *culvert) describe(full, ruled bool) {
	t := c.t
	c.twin.enter()
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for i := range ports {
		own = append(own, host4(i, 1))
		if i == portWithoutXDP {
			continue
		}
		conf := func(family, name string) int {
			return c.twin.get("net/" + family + "/conf/" + portName(i) + "/" + name)
		}
		check(t, c.plane.SetDev(c.twin.index[i], routeplane.Dev{
			Port: c.twin.index[i], MAC: portMAC(i), Xmit: true,
			Forward4: conf("ipv4", "forwarding") != 0,
			Forward6: conf("ipv6", "disable_ipv6") == 0 &&
				conf("ipv6", "force_forwarding")+c.twin.get("net/ipv6/conf/all/forwarding") > 0,
			RPFilter:  uint8(max(conf("ipv4", "rp_filter"), c.twin.get("net/ipv4/conf/all/rp_filter"))),
			Redirects: conf("ipv4", "send_redirects")+c.twin.get("net/ipv4/conf/all/send_redirects") > 0,
		}))
	}
	check(t, c.plane.SetOwn4(own))
	check(t, c.plane.SetPolicy(routeplane.Policy{
		Hash4:      uint8(c.twin.get("net/ipv4/fib_multipath_hash_policy")),
		Hash6:      uint8(c.twin.get("net/ipv6/fib_multipath_hash_policy")),
		FullCheck4: full, Rules4: ruled, Rules6: ruled,
		MTU4: lowestMTU, MTU6: lowestMTU,
	}))
}

// TestAskingTheKernel judges the program without a mirror. It asks the kernel about each packet.
func TestAskingTheKernel(t *testing.T) {
	for _, group := range groupScenarios(scenarios) {
		t.Run(group[0].name, func(t *testing.T) {
			tr := newTrial(t, group[0], 3, func(w *twin) *culvert { return attach(w, routeplane.Options{NoMirror: true}) })
			for n, s := range group {
				if n > 0 {
					tr.begin(s)
				}
				tr.fast.describe(s.full, len(s.tables) > 0)
				tr.asks = true
				tr.takes = min(tr.takes, flowAddresses) // bpf_fib_lookup takes no more fields
				tr.all(20, tr.fast.fate)
				tr.churn(20)
				tr.report()
				tr.end()
			}
		})
	}
}
