// SPDX-License-Identifier: Apache-2.0

package dnssource

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"culvert/internal/lb/source/sourcetest"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

const server = "127.0.0.1:5300"

// dnsmasq is a server of names for the domain test, in the network namespace of the process.
type dnsmasq struct {
	t    *testing.T
	dir  string
	conf []string
	cmd  *exec.Cmd
}

func newDnsmasq(t *testing.T) *dnsmasq {
	testbed.IP(t, "link set lo up")
	d := &dnsmasq{t: t, dir: t.TempDir()}
	t.Cleanup(d.kill)
	return d
}

// start starts it with these lines of configuration, in place of the one that runs, and waits until it answers.
func (d *dnsmasq) start(conf ...string) {
	d.t.Helper()
	d.kill()
	d.conf = conf
	text := fmt.Sprintf("no-resolv\nno-hosts\nlocal=/test/\nlisten-address=127.0.0.1\nbind-interfaces\nport=5300\nuser=root\npid-file=%s/pid\n%s\n",
		d.dir, strings.Join(conf, "\n"))
	path := filepath.Join(d.dir, "conf")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
	d.cmd = exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file="+path)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	for end := time.Now().Add(testbed.Patience); ; time.Sleep(10 * time.Millisecond) {
		question := new(dns.Msg)
		question.SetQuestion("any.test.", dns.TypeA)
		if _, err := dns.Exchange(question, server); err == nil {
			return
		} else if time.Now().After(end) {
			d.t.Fatalf("dnsmasq does not answer: %v", err)
		}
	}
}

func (d *dnsmasq) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		d.cmd = nil
	}
}

// TestConformance asks for the addresses of a name.
func TestConformance(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	d := newDnsmasq(t)
	sourcetest.Run(t, sourcetest.World{
		Source: Source{Host: "web.test", IPv4: true, IPv6: true, Resolvers: []string{server}, MinTTL: 50 * time.Millisecond, MaxTTL: time.Minute},
		Set: func(all []netip.Addr) {
			var conf []string
			for _, a := range all {
				conf = append(conf, "host-record=web.test,"+a.String())
			}
			d.start(conf...)
		},
		Break: d.kill,
		Mend:  func() { d.start(d.conf...) },
	})
}

// TestConformanceSRV asks for the targets of a name, and for their addresses.
func TestConformanceSRV(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	d := newDnsmasq(t)
	var good []string
	sourcetest.Run(t, sourcetest.World{
		Source: Source{
			Host: "_web._tcp.test", IPv4: true, SRV: true, Port: 80, Resolvers: []string{server}, MinTTL: 50 * time.Millisecond, MaxTTL: time.Minute,
		},
		Set: func(all []netip.Addr) {
			good = nil
			for n, a := range all {
				good = append(good, fmt.Sprintf("srv-host=_web._tcp.test,web%d.test,80,0,10", n), fmt.Sprintf("host-record=web%d.test,%s", n, a))
			}
			d.start(good...)
		},
		Spoil: func() { d.start("srv-host=_web._tcp.test,web0.test,8080", "host-record=web0.test,10.0.0.9") },
		Break: d.kill,
		Mend:  func() { d.start(good...) },
	})
}

// TestRecords looks at what is made of the records of dnsmasq.
func TestRecords(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	d := newDnsmasq(t)
	d.start("host-record=both.test,10.0.0.1,fd00::1", "host-record=other.test,10.0.0.2", "cname=alias.test,both.test", "cname=again.test,alias.test",
		"srv-host=_a._tcp.test,both.test,80,1,0", "srv-host=_a._tcp.test,other.test,80,1,30", "srv-host=_a._tcp.test,spare.test,80,2,30",
		"srv-host=_twice._tcp.test,both.test,80,1,3", "srv-host=_twice._tcp.test,alias.test,80,1,9",
		"srv-host=_gone._tcp.test,gone.test,80,1,3")
	for _, c := range []struct {
		source Source
		want   string // addresses with weights, or a part of an error
	}{
		{Source{Host: "both.test", IPv4: true, IPv6: true}, "10.0.0.1*1 fd00::1*1"},
		{Source{Host: "both.test", IPv6: true}, "fd00::1*1"},
		{Source{Host: "BOTH.test.", IPv4: true}, "10.0.0.1*1"},
		{Source{Host: "other.test", IPv6: true}, ""},
		{Source{Host: "again.test", IPv4: true}, "10.0.0.1*1"},
		{Source{Host: "_a._tcp.test", SRV: true, IPv4: true, Port: 80}, "10.0.0.1*1 10.0.0.2*30"},
		{Source{Host: "_a._tcp.test", SRV: true, IPv6: true}, "fd00::1*1"},
		{Source{Host: "_twice._tcp.test", SRV: true, IPv4: true}, "10.0.0.1*9"},
		{Source{Host: "none.test", IPv4: true}, "A none.test.: the name does not exist (NXDOMAIN), says resolver " + server},
		{Source{Host: "_gone._tcp.test", SRV: true, IPv4: true}, "A gone.test.: the name does not exist"},
		{Source{Host: "_a._tcp.test", SRV: true, IPv4: true, Port: 443}, "and packets get to backends at the VIP's port 443"},
		{Source{Host: "elsewhere.example", IPv4: true}, "answers with REFUSED"},
	} {
		c.source.Resolvers, c.source.MinTTL, c.source.MaxTTL = []string{server}, time.Second, time.Minute
		if got := look(t, c.source); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%+v: %s, want %s", c.source, got, c.want)
		}
	}
}

// look returns the answer of a source in words.
func look(t *testing.T, s Source) string {
	a := asking{Source: s, ctx: t.Context(), ttl: s.MaxTTL}
	if err := a.all(); err != nil {
		return err.Error()
	}
	var all []string
	for _, o := range a.list.All() {
		all = append(all, fmt.Sprintf("%s*%d", o.Addr, o.Weight))
	}
	return strings.Join(all, " ")
}
