// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

// counters are all counters that say what became of packets, by name.
type counters struct {
	// ports has what the programs count, by interface and then by verdict and reason, or kind of loss.
	ports map[string]map[string]uint64
	// rules has what the rules of the filter count.
	rules map[string]uint64
	// kernel has what the kernel counts as dropped.
	kernel map[string]uint64
}

// read reads all counters.
func (s *soak) read() (c counters, err error) {
	if c.ports, err = s.ports(); err != nil {
		return c, err
	}
	if c.rules, err = s.rules(); err != nil {
		return c, err
	}
	c.kernel = map[string]uint64{}
	for _, ns := range []string{"rut", "b1", "b2"} {
		if err := s.kernelDrops(ns, c.kernel); err != nil {
			return c, err
		}
	}
	for _, name := range s.attached {
		st, err := s.ends["rut/"+name].Stats()
		if err != nil {
			return c, err
		}
		c.kernel["kernel: queue of "+name] = st.StackDropped
		c.kernel["kernel: own drops of "+name] = st.OwnDropped
	}
	return c, nil
}

// ports reads the counters of all interfaces.
func (s *soak) ports() (map[string]map[string]uint64, error) {
	var all []stats.Port
	err := s.plane(func(i *datapath.Instance) (err error) {
		all, err = i.Ports()
		return err
	})
	if err != nil {
		return nil, err
	}
	ports := map[string]map[string]uint64{}
	for _, p := range all {
		c := map[string]uint64{}
		for _, r := range p.Reasons {
			verdict := r.Verdict
			if r.Limited {
				verdict = stats.VerdictLimited
			}
			c[verdict+" "+r.Name] += r.Packets
		}
		for kind, n := range p.Losses {
			c["lost "+kind] += n
		}
		ports[p.Interface] = c
	}
	return ports, nil
}

// verdicts returns how many packets of an interface are counted: under a verdict, or as lost before it.
func verdicts(c map[string]uint64) (n uint64) {
	for name, packets := range c {
		if !strings.HasPrefix(name, "lost ") || name == "lost worker-queue" {
			n += packets
		}
	}
	return n
}

// rules reads the counters of the filter's rules.
func (s *soak) rules() (map[string]uint64, error) {
	out, err := s.culvert(background, "filter", "list", "-j")
	var list struct {
		Rules []struct {
			Rule    string
			Packets uint64
			Over    *struct{ Packets uint64 }
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the counters of the filter's rules: %w", err)
	}
	rules := map[string]uint64{}
	for _, r := range list.Rules {
		rules["rule "+r.Rule] = r.Packets
		if r.Over != nil {
			rules["rule "+r.Rule+" over"] = r.Over.Packets
		}
	}
	return rules, nil
}

// dropsOf are the kernel's counters of packets that it has dropped, of a namespace.
var dropsOf = []string{
	"IpInHdrErrors", "IpInAddrErrors", "IpInDiscards", "IpOutDiscards", "IpOutNoRoutes", "UdpNoPorts", "UdpInErrors", "UdpRcvbufErrors",
	"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InNoRoutes", "Ip6InAddrErrors", "Ip6InTruncatedPkts", "Ip6InDiscards", "Ip6OutDiscards", "Ip6OutNoRoutes",
	"Udp6NoPorts", "Udp6InErrors", "Udp6RcvbufErrors", "IpExtInNoRoutes", "IpExtInTruncatedPkts",
}

// kernelDrops reads them.
func (s *soak) kernelDrops(ns string, into map[string]uint64) error {
	return s.lab.Do(ns, func() error {
		for _, name := range []string{"snmp", "netstat", "snmp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			for counter, n := range parseSNMP(string(text)) {
				if slices.Contains(dropsOf, counter) {
					into["kernel: "+ns+" "+counter] += n
				}
			}
		}
		return nil
	})
}

// parseSNMP reads /proc/net/snmp, netstat or snmp6.
func parseSNMP(text string) map[string]uint64 {
	all := map[string]uint64{}
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) < 2:
		case !strings.HasSuffix(f[0], ":"): // snmp6: a name and its number
			all[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
		case len(names) > 0 && names[0] == f[0] && len(names) == len(f):
			for n, name := range names[1:] {
				all[strings.TrimSuffix(f[0], ":")+name], _ = strconv.ParseUint(f[n+1], 10, 64)
			}
			names = nil
		default:
			names = f
		}
	}
	return all
}

// still reads how many packets each interface has received, and how many are counted there: of each at a moment at which nothing
// arrives.
func (s *soak) still() (map[string]portLine, error) {
	received := func() (map[string]uint64, error) {
		all := map[string]uint64{}
		for _, i := range s.attached {
			st, err := s.ends["rut/"+i].Stats()
			if err != nil {
				return nil, err
			}
			all[i] = st.Received
		}
		return all, nil
	}
	ports := map[string]portLine{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		before, err := received()
		if err != nil {
			return nil, err
		}
		now, err := s.ports()
		if err != nil {
			return nil, err
		}
		after, err := received()
		if err != nil {
			return nil, err
		}
		for name, n := range before {
			if _, done := ports[name]; !done && n == after[name] {
				ports[name] = portLine{name, n, verdicts(now[name])}
			}
		}
		if len(ports) == len(before) {
			return ports, nil
		}
	}
	return nil, errors.New("there is no moment at which nothing arrives")
}

// account makes the ledger.
func (s *soak) account() (*ledger, error) {
	for _, sink := range s.sinks {
		if _, err := sink.Settled(500*time.Millisecond, time.Minute); err != nil {
			return nil, err
		}
	}
	time.Sleep(2 * time.Second) // what waits in sockets
	l := &ledger{}
	now, err := s.read()
	if err != nil {
		return nil, err
	}
	tags := make([]uint64, kinds*numbers)
	for _, sink := range s.sinks {
		some, err := sink.Tags()
		if err != nil {
			return nil, err
		}
		for n, packets := range some {
			tags[n] += packets
		}
	}
	for n, f := range s.flows {
		x := &line{kind: f.name, exact: f.exact, none: f.none}
		sent, arrived := inTurns(f.sent.Load(), numbers), tags[n*numbers:(n+1)*numbers]
		if t := s.echo.received[n]; t != nil {
			arrived = t.all()
		}
		if n > 0 && s.echo.answered[n-1] != nil {
			sent = s.echo.answered[n-1].of
		}
		x.count(sent, arrived)
		l.lines = append(l.lines, x)
	}
	s.causes(l, now)
	ports, err := s.still()
	if err != nil {
		return nil, err
	}
	for _, name := range sorted(ports) {
		l.ports = append(l.ports, portLine{name, ports[name].received - s.first[name].received, ports[name].counted - s.first[name].counted})
	}
	l.judge(mayExplain)
	s.counted(l, now)
	return l, nil
}

// counted compares a rule that counts with what was sent.
func (s *soak) counted(l *ledger, now counters) {
	got, want := now.rules["rule allowed"]-s.before.rules["rule allowed"], s.flows[kindAllowed].sent.Load()
	if got != want {
		l.trouble("rule allowed has counted %d packets, want %d", got, want)
	}
}

// causes adds all counters that can explain that a packet has not arrived.
func (s *soak) causes(l *ledger, now counters) {
	for _, name := range sorted(now.rules) {
		if name == "rule dropped" || name == "rule blocked" || name == "rule limited over" {
			l.causes.add(name, now.rules[name]-s.before.rules[name])
		}
	}
	for _, port := range sorted(now.ports) {
		for _, reason := range sorted(now.ports[port]) {
			if isLoss(reason) {
				l.causes.add(port+": "+reason, now.ports[port][reason]-s.before.ports[port][reason])
			}
		}
	}
	for _, name := range sorted(now.kernel) {
		l.causes.add(name, now.kernel[name]-s.before.kernel[name])
	}
}

// isLoss tells whether packets that an interface counts so do not arrive. Those that are passed to the kernel and to the slow path
// are forwarded there, but for two reasons. What the filter drops, its rules have counted.
func isLoss(reason string) bool {
	verdict, name, _ := strings.Cut(reason, " ")
	switch verdict {
	case "drop":
		return !strings.HasPrefix(name, "filter") && name != "scion-bfd" // what rules count, and control planes
	case "lost", stats.VerdictLimited:
		return true
	case "punt":
		return name == "scion-link-down" || name == "scion-mac"
	}
	return false
}

// mayExplain tells whether a cause can explain that packets of a kind are missing.
func mayExplain(kind, cause string) bool {
	from, what, _ := strings.Cut(cause, ": ")
	scion, balanced, answers := strings.HasPrefix(kind, "scion"), strings.HasPrefix(kind, "balanced"), strings.HasPrefix(kind, "its answers")
	if from == "kernel" {
		where, counter, _ := strings.Cut(what, " ")
		six := strings.HasPrefix(counter, "Ip6") || strings.HasPrefix(counter, "Udp6")
		switch {
		case where == "b1" || where == "b2":
			return balanced && six == strings.HasSuffix(kind, "IPv6")
		case where != "rut":
			return true
		}
		return scion == strings.HasPrefix(counter, "Udp") && six == strings.HasSuffix(kind, "IPv6")
	}
	if what == "punt scion-mac" || what == stats.VerdictLimited+" scion-mac" {
		return kind == "scion, former key"
	}
	switch from {
	case "to-as1":
		return scion && kind != "scion as3 > as1"
	case "to-as3":
		return kind == "scion as3 > as1"
	case "to-client":
		return !scion && !answers
	case "to-b1", "to-b2":
		return answers
	}
	return false
}
