// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/netdev"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// process serves a load balancer as a node does. Its router is 10.9.1.254, which has a BIRD, and answers health checks.
type process struct {
	t       *testing.T
	log     testbed.Output
	router  *testbed.Namespace
	bird    string // the control socket
	inst    *datapath.Instance
	serving stage.Prepared
	end     context.CancelCauseFunc
	done    chan error
	// closing is how long the reload before kept the load balancer and the stages behind it unserved.
	closing time.Duration
}

const birdConfig = `log "%[1]s/log" all;
router id 10.9.1.254;
timeformat protocol iso long ms;
protocol device { }
protocol direct { ipv4; }
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }
protocol bgp m1 { local 10.9.1.254 as 65000; neighbor 10.9.1.1 as 65001; error wait time 1, 2; hold time 600;
  ipv4 { import all; export none; }; ipv6 { import all; export none; }; }
`

func newProcess(t *testing.T) *process {
	p := &process{t: t, router: testbed.NewNamespace(t)}
	testbed.IP(t, "link add lb0 type veth peer name r0")
	p.router.Take(t, "r0")
	p.must(testbed.PrepareEnd("lb0", "10.9.1.1/24"))
	testbed.IP(t, "link set lo up")
	p.router.Must(t, func() error {
		testbed.IP(t, "link set lo up")
		testbed.IP(t, "addr add 192.0.2.1/32 dev lo") // it is the backend that is up
		err := testbed.PrepareEnd("r0", "10.9.1.254/24")
		if err == nil {
			_, err = netdev.Ethtool("r0", unix.ETHTOOL_SGRO, 1) // frames can be redirected to it
		}
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", "192.0.2.1:80")
		if err == nil {
			t.Cleanup(func() { l.Close() })
			go answer(l)
		}
		return err
	})
	testbed.IP(t, "route add default via 10.9.1.254")
	testbed.IP(t, "neigh add 10.9.1.253 lladdr 02:00:00:00:00:fd dev lb0 nud permanent") // it never answers
	dir := t.TempDir()
	p.bird = filepath.Join(dir, "ctl")
	p.must(os.WriteFile(filepath.Join(dir, "conf"), fmt.Appendf(nil, birdConfig, dir), 0o644))
	cmd := exec.Command("bird", "-f", "-c", filepath.Join(dir, "conf"), "-s", p.bird)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.router.Must(t, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the process' log:\n%s", p.log.String())
		}
	})
	return p
}

// answer accepts connections, and closes them.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
	}
}

func (p *process) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) started() stage.Start {
	return stage.Start{Process: true, Log: slog.New(slog.NewTextHandler(&p.log, nil)), Out: io.Discard}
}

// options returns those of the data plane with a stage.
func (p *process) options(s stage.Prepared) datapath.Options {
	o := datapath.Options{Name: "reload", Interfaces: []string{"lb0"}, Parts: []datapath.Part{filterplane.NewPart()}}
	if part := s.Part(); part != nil {
		o.Parts = append(o.Parts, part)
	}
	return o
}

// start brings a file into force and serves it, as a node does at its start.
func (p *process) start(text string) {
	p.t.Helper()
	plan, err := compile(p.t, text)
	p.must(err)
	p.serving, err = plan.Prepare(p.t.Context(), p.started())
	p.must(err)
	p.must(plan.Check(stage.Situation{Interfaces: []string{"lb0"}}))
	o := p.options(p.serving)
	o.Begin = func(inst *datapath.Instance) error {
		return p.serving.Commit(p.t.Context(), inst, func() error { return nil })
	}
	p.inst, err = datapath.Attach(o)
	p.must(err)
	p.t.Cleanup(func() { _ = p.inst.DetachAll(); p.inst.Close() })
	p.serve()
	p.t.Cleanup(func() { p.stop(nil); _ = p.serving.Close() })
}

func (p *process) serve() {
	ctx, end := context.WithCancelCause(context.Background())
	p.end, p.done = end, make(chan error, 1)
	go func(s stage.Prepared, done chan error) { done <- s.Serve(ctx, func() {}) }(p.serving, p.done)
}

// stop ends Serve with a cause.
func (p *process) stop(cause error) {
	p.end(cause)
	if err := <-p.done; err != nil && !errors.Is(err, context.Canceled) {
		p.t.Errorf("served: %v", err)
	}
	p.done <- nil
}

// reload brings another file into force, as a node does. If no is not nil, the stages behind this one refuse it with that. It
// returns how: "served" by the former stage, "followed" on the same program, or "loaded" anew.
func (p *process) reload(text string, no error) (how string) {
	p.t.Helper()
	plan, err := compile(p.t, text)
	p.must(err)
	next, err := plan.Succeed(p.t.Context(), p.started(), p.serving)
	p.must(err)
	p.must(plan.Check(stage.Situation{Interfaces: []string{"lb0"}, Running: p.inst}))
	o := p.options(next)
	fits, err := p.inst.Fits(o)
	p.must(err)
	how = map[bool]string{false: "loaded", true: "followed"}[fits]
	if fits && plan.ServedBy(p.serving) {
		how = "served"
	} else {
		p.stop(stage.ErrSucceeded)
	}
	inst, begin := p.inst, func(inst *datapath.Instance) error {
		return next.Commit(p.t.Context(), inst, func() error { return no })
	}
	if fits {
		err = p.inst.Recommit(begin)
	} else {
		o.Former, o.Begin = p.inst, begin
		inst, err = datapath.Attach(o)
	}
	if !errors.Is(err, no) {
		p.t.Fatal(err)
	}
	switch {
	case no != nil:
		p.must(next.Close())
		if how != "served" {
			p.serve()
		}
		return how
	case how == "served":
		p.must(next.Close())
		return how
	}
	closing := time.Now()
	p.must(p.serving.Close())
	p.closing = time.Since(closing)
	if p.inst != inst {
		p.inst.Close()
	}
	p.serving, p.inst = next, inst
	p.serve()
	return how
}

// eventually waits until see returns what is wanted.
func (p *process) eventually(what, want string, see func() string) {
	p.t.Helper()
	var seen string
	for end := time.Now().Add(testbed.Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if seen = see(); seen == want {
			return
		}
	}
	p.t.Fatalf("%s: %q, want %q", what, seen, want)
}

func (p *process) ask(command string) string {
	out, _ := exec.Command("birdc", append([]string{"-s", p.bird}, strings.Fields(command)...)...).CombinedOutput()
	return string(out)
}

// announced returns the prefixes that BIRD has from the process, sorted.
func (p *process) announced() string {
	var all []string
	for _, line := range strings.Split(p.ask("show route protocol m1"), "\n") {
		if prefix, _, ok := strings.Cut(line, " "); ok && strings.Contains(prefix, "/") {
			all = append(all, prefix)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// session returns since when BIRD's session is established, and the numbers of its withdrawals.
func (p *process) session() (since, withdrawals string) {
	for _, line := range strings.Split(p.ask("show protocols all m1"), "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) > 6 && words[0] == "m1" && words[6] == "Established":
			since = words[4] + " " + words[5]
		case len(words) > 2 && words[0] == "Import" && words[1] == "withdraws:":
			withdrawals += " " + words[2]
		}
	}
	return since, withdrawals
}

// health returns what the checks of the first VIP's backends have found.
func (p *process) health() string {
	var all []string
	plane, err := lbplane.View(p.inst)
	p.must(err)
	s, err := lb.Load(plane)
	p.must(err)
	for _, b := range s.VIPs[0].Backends {
		h, err := plane.Health(b.ID.Number())
		p.must(err)
		written, err := plane.Backend(b.ID.Number())
		p.must(err)
		all = append(all, fmt.Sprintf("%s %s down=%t since %s", b.Addr, h.State, written.Down, h.Since.Format(time.StampMicro)))
	}
	return strings.Join(all, ", ")
}

// states returns health without the times.
func (p *process) states() string {
	var all []string
	for _, one := range strings.Split(p.health(), ", ") {
		state, _, _ := strings.Cut(one, " since")
		all = append(all, state)
	}
	return strings.Join(all, ", ")
}

// flows returns how many flows the table has.
func (p *process) flows() string {
	plane, err := lbplane.View(p.inst)
	p.must(err)
	n := 0
	p.must(plane.Flows(func(lbplane.Flow) bool { n++; return true }))
	return fmt.Sprint(n)
}

// send sends datagrams from as many clients to a service.
func (p *process) send(to string, clients int) {
	p.router.Must(p.t, func() error {
		for range clients {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}
