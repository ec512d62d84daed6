// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/announce"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/testbed"
)

// reloadFile returns a file with a VIP that is checked, and others that are not. more is added to [lb] and bgp to [lb.bgp], which is
// left out for "-".
func reloadFile(more, bgp string, others ...string) string {
	text := "interfaces = [\"lb0\"]\n[lb]\nring_size = 257\nflows = 4096\nseed = \"secret\"\n" + more +
		"[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\nencapsulation = \"l2\"\n" +
		"[lb.vip.check]\ntype = \"tcp\"\ninterval = \"500ms\"\ntimeout = \"200ms\"\n" +
		"[[lb.vip.backend]]\naddress = \"10.9.1.254\"\n[[lb.vip.backend]]\naddress = \"10.9.1.253\"\n"
	for _, address := range others {
		text += "[[lb.vip]]\naddress = \"" + address + "\"\nprotocol = \"udp\"\nencapsulation = \"l2\"\n[[lb.vip.backend]]\naddress = \"10.9.1.254\"\n"
	}
	if bgp == "-" {
		return text
	}
	return text + "[lb.bgp]\nasn = 65001\nrouter_id = \"10.9.1.1\"\nhold_time = \"600s\"\ngraceful_restart = \"600s\"\n" + bgp +
		"[[lb.bgp.neighbor]]\naddress = \"10.9.1.254\"\nasn = 65000\n"
}

// noLB is a file that turns another stage on.
const noLB = "interfaces = [\"lb0\"]\n[filter]\n"

// TestReload changes the file of a load balancer that runs, in all the ways in which that takes effect. The router keeps the session
// and what is still announced, and backends stay up or down.
func TestReload(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	p := newProcess(t)
	// expect looks at the way in which a file took effect, and at what the router has.
	expect := func(how, wantHow, want string) {
		t.Helper()
		if how != wantHow {
			t.Errorf("the file was %s, want %s", how, wantHow)
		}
		p.eventually("announced", want, p.announced)
	}
	p.start(reloadFile("", "", "192.0.2.2:53", "192.0.2.4:53"))
	expect("", "", "192.0.2.1/32 192.0.2.2/32 192.0.2.4/32")
	p.eventually("health", "10.9.1.254 up down=false, 10.9.1.253 down down=true", p.states)
	p.eventually("sessions", "established", p.published)
	p.send("192.0.2.4:53", 20)
	p.eventually("flows", "20", p.flows)
	since, _ := p.session()
	health := p.health()
	same := func(wantWithdrawals string) {
		t.Helper()
		now, withdrawals := p.session()
		if !sameSession(t, since, now) || !slices.Equal(strings.Fields(withdrawals), strings.Fields(wantWithdrawals)) {
			t.Errorf("session since %s, withdrawals%s; was since %s, want withdrawals %s", now, withdrawals, since, wantWithdrawals)
		}
		if now := p.health(); now != health {
			t.Errorf("health is %s, was %s", now, health)
		}
		if known := p.published(); known != "established" {
			t.Errorf("'lb show' has session %s", known)
		}
	}
	same("0 0")

	expect(p.reload(reloadFile("", "", "192.0.2.3:53", "192.0.2.4:53"), nil), "served", "192.0.2.1/32 192.0.2.3/32 192.0.2.4/32")
	same("1 0")
	expect(p.reload(reloadFile("", "communities = [\"65001:7\"]\n", "192.0.2.3:53", "192.0.2.4:53"), nil), "followed", "192.0.2.1/32 192.0.2.3/32 192.0.2.4/32")
	p.eventually("community", "true", func() string {
		return map[bool]string{true: "true"}[strings.Contains(p.ask("show route all for 192.0.2.1/32"), "(65001,7)")]
	})
	same("1 0")
	// A VIP that goes while another program is loaded is withdrawn, and the others are not.
	more := "udp_timeout = \"4m\"\n"
	expect(p.reload(reloadFile(more, "communities = [\"65001:7\"]\n", "192.0.2.4:53"), nil), "loaded", "192.0.2.1/32 192.0.2.4/32")
	same("2 0")
	for _, flows := range []string{"flows = 4096", "flows = 9000", "ring_size = 521"} {
		key, _, _ := strings.Cut(flows, " ")
		text := strings.Replace(reloadFile(more, "", "192.0.2.4:53"), key+" = ", "# ", 1)
		expect(p.reload(strings.Replace(text, "[lb]\n", "[lb]\n"+flows+"\n", 1), nil), map[bool]string{true: "followed", false: "loaded"}[flows == "flows = 4096"],
			"192.0.2.1/32 192.0.2.4/32")
		same("2 0")
		if n := p.flows(); n != "20" {
			t.Errorf("%s flows with %s, want 20", n, flows)
		}
	}

	// A file that is refused has no effect, whatever it would have changed.
	no := errors.New("no")
	for _, text := range []string{reloadFile("", "-"), reloadFile(more, "med = 7\n", "192.0.2.5:53"), noLB} {
		p.reload(text, no)
		expect("", "", "192.0.2.1/32 192.0.2.4/32")
		same("2 0")
		if n := p.flows(); n != "20" {
			t.Errorf("%s flows, want 20", n)
		}
	}

	// The router keeps nothing in spite of the graceful restart.
	expect(p.reload(reloadFile(more, "-", "192.0.2.4:53"), nil), "loaded", "")
	p.eventually("health", "10.9.1.254 up down=false, 10.9.1.253 down down=true", p.states)
	p.eventually("sessions", "", p.published)
	expect(p.reload(reloadFile(more, "", "192.0.2.4:53"), nil), "followed", "192.0.2.1/32 192.0.2.4/32")
	expect(p.reload(noLB, nil), "loaded", "")
	expect(p.reload(reloadFile("", "", "192.0.2.4:53"), nil), "loaded", "192.0.2.1/32 192.0.2.4/32")
	p.stop(nil)
	if got := p.announced(); got != "192.0.2.1/32 192.0.2.4/32" {
		t.Errorf("announced after the end of the process: %s", got)
	}
}

// sameSession tells whether a session is established, and since the same time. BIRD's times of one moment may differ by a
// millisecond; a new session takes more than a second.
func sameSession(t *testing.T, was, is string) bool {
	t.Helper()
	if was == "" || is == "" {
		return false
	}
	a, errA := time.Parse("2006-01-02 15:04:05.000", was)
	b, errB := time.Parse("2006-01-02 15:04:05.000", is)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	return a.Sub(b).Abs() <= 10*time.Millisecond
}

// TestOffWithoutAnswer turns the load balancer off while its router does not answer, for which the end of a session waits. The other
// stages of a node do not.
func TestOffWithoutAnswer(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	p := newProcess(t)
	p.start(reloadFile("", "", "192.0.2.2:53"))
	p.eventually("announced", "192.0.2.1/32 192.0.2.2/32", p.announced)
	p.eventually("sessions", "established", p.published)
	p.router.Must(t, func() error { testbed.IP(t, "link set r0 down"); return nil })
	p.reload(noLB, nil)
	if p.closing > announce.WriteWait/2 {
		t.Errorf("the other stages waited %s", p.closing)
	}
	p.eventually("sessions", "unknown", p.published)
	p.stop(nil)
	p.must(p.serving.Close()) // waits
	if text := p.log.String(); strings.Contains(text, "end the BGP sessions") {
		t.Errorf("the sessions have not ended: %s", text)
	}
}

// published returns the states of the BGP sessions that commands see.
func (p *process) published() string {
	all, known, err := bgpstate.Of(p.inst)
	if err != nil || !known {
		return "unknown"
	}
	var states []string
	for _, s := range all {
		states = append(states, s.State)
	}
	return strings.Join(states, " ")
}
