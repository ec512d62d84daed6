// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/scionproto/scion/router/control"

	"culvert/internal/lab"
)

// agitator does something again and again.
type agitator struct {
	name string
	// every is the mean time between two times.
	every time.Duration
	do    func(context.Context, *rand.Rand) error

	times, failed atomic.Uint64
}

// endGrace is how much time an agitator has to end what it has begun.
const endGrace = 20 * time.Second

// errLeft says that an agitator has left everything as it was.
var errLeft = errors.New("nothing to do now")

// agitate lets an agitator work until ctx ends. What it has begun then, it ends if that does not take long.
func (s *soak) agitate(ctx context.Context, a *agitator, rng *rand.Rand) {
	longer, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(endGrace, stop) })()
	for sleep(ctx, time.Duration((0.5+rng.Float64())*float64(a.every))) {
		err := a.do(longer, rng)
		if errors.Is(err, errLeft) {
			continue
		}
		a.times.Add(1)
		if err != nil && longer.Err() == nil {
			a.failed.Add(1)
			s.trouble("%s: %v", a.name, err)
		}
	}
}

func (s *soak) allAgitators() []*agitator {
	const second = time.Second
	return []*agitator{
		{name: "routes added and withdrawn", every: 5 * second, do: s.churn},
		{name: "next hop of counted routes changed", every: 7 * second, do: s.turn},
		{name: "path of counted routes cut", every: 40 * second, do: s.cut},
		{name: "configuration changed and reloaded", every: 10 * second, do: s.change},
		{name: "rules and sets changed by hand", every: 6 * second, do: s.editFilter},
		{name: "VIPs and weights changed by hand", every: 9 * second, do: s.editLB},
		{name: "backend failed its checks", every: 40 * second, do: s.sicken},
		{name: "backend's web server killed", every: 45 * second, do: s.killServer},
		{name: "backend deaf to UDP", every: 50 * second, do: s.deafen},
		{name: "backend drained", every: 30 * second, do: s.drain},
		{name: "SCION key rotated", every: 25 * second, do: s.rotate},
		{name: "culvert killed, ended or upgraded", every: max(45*second, s.duration/30), do: s.end},
		{name: "SCION services restarted", every: 70 * second, do: s.restartServices},
		{name: "neighbor's SCION router restarted", every: 120 * second, do: s.restartRouter},
	}
}

// churn has peer announce other routes, which no counted traffic takes.
func (s *soak) churn(ctx context.Context, rng *rand.Rand) error {
	s.path.Lock()
	defer s.path.Unlock()
	text := "protocol static churned4 {\n\tipv4;\n"
	for range rng.IntN(800) {
		text += fmt.Sprintf("\troute 10.%d.%d.0/%d blackhole;\n", rng.IntN(200), rng.IntN(256), 24)
	}
	text += "}\nprotocol static churned6 {\n\tipv6;\n"
	for range rng.IntN(200) {
		text += fmt.Sprintf("\troute 2001:db8:%x:%x::/64 blackhole;\n", 0x1000+rng.IntN(64), rng.IntN(1<<16))
	}
	if err := os.WriteFile(s.churned(), []byte(text+"}\n"), 0o644); err != nil {
		return err
	}
	return s.bird(ctx, "peer", "configure")
}

// announce has peer announce both paths, with a or b as the better one, and waits until rut knows them. There is always one path left
// then when the other one is taken away.
func (s *soak) announce(ctx context.Context, better string) error {
	if err := s.prefer(better); err != nil {
		return err
	}
	if err := s.bird(ctx, "peer", "configure"); err != nil {
		return err
	}
	return s.until(ctx, "both paths to peer", func() error { return s.bothPaths(ctx) })
}

// turn has the other path be the better one, withdraws one, or restarts its session.
func (s *soak) turn(ctx context.Context, rng *rand.Rand) error {
	s.path.Lock()
	defer s.path.Unlock()
	better := []string{"a", "b"}[rng.IntN(2)]
	if err := s.announce(ctx, better); err != nil {
		return err
	}
	switch rng.IntN(4) {
	case 0:
		return s.bird(ctx, "peer", "restart", []string{"rut4", "rut4b", "rut6", "rut6b"}[rng.IntN(4)])
	case 1:
		if err := s.prefer("only-" + better); err != nil {
			return err
		}
		return s.bird(ctx, "peer", "configure")
	}
	return nil
}

// cut sets the second path down while counted traffic may take it, and up again.
func (s *soak) cut(ctx context.Context, rng *rand.Rand) error {
	s.path.Lock()
	defer s.path.Unlock()
	if err := s.announce(ctx, "b"); err != nil {
		return err
	}
	sleep(ctx, time.Duration(rng.IntN(3000))*time.Millisecond)
	at := [][]string{{"peer", "to-rut2"}, {"rut", secondPath}}[rng.IntN(2)]
	if err := s.run(ctx, at[0], "ip", "link", "set", at[1], "down"); err != nil {
		return err
	}
	sleep(ctx, time.Duration(500+rng.IntN(4000))*time.Millisecond)
	return s.run(ctx, at[0], "ip", "link", "set", at[1], "up")
}

// change reloads another configuration.
func (s *soak) change(ctx context.Context, rng *rand.Rand) error {
	s.process.Lock()
	defer s.process.Unlock()
	s.wish = another(rng)
	if err := s.write(s.wish, s.key); err != nil {
		return err
	}
	return s.reload(ctx)
}

// editFilter adds and deletes rules and entries of sets by hand.
func (s *soak) editFilter(ctx context.Context, rng *rand.Rand) error {
	s.process.Lock()
	defer s.process.Unlock()
	defer s.changing()()
	name := fmt.Sprintf("hand%d", rng.IntN(1<<20))
	add := []string{"filter", "add", "--name", name}
	if rng.IntN(2) == 0 {
		add = append(add, "--first")
	}
	port := 2000 + rng.IntN(4000)
	for _, args := range [][]string{
		append(add, []string{"count", "drop"}[rng.IntN(2)], fmt.Sprintf("tcp dst port %d", port)),
		{"filter", "set", "add", name, fmt.Sprintf("10.%d.0.0/16", rng.IntN(256)), "192.0.2.7", "--timeout", "10m"},
		{"filter", "add", "--name", name + "s", "--src", "@" + name, "drop"},
		{"filter", "set", "replace", name, fmt.Sprintf("10.%d.0.0/16", rng.IntN(256))},
		{"filter", "del", name, name + "s"},
		{"filter", "set", "del", name},
	} {
		if _, err := s.culvert(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// editLB changes the weights of a backend, and adds and deletes a VIP with a backend, by hand.
func (s *soak) editLB(ctx context.Context, rng *rand.Rand) error {
	s.process.Lock()
	defer s.process.Unlock()
	addr := backends[[]string{"b1", "b2"}[rng.IntN(2)]]
	vip := fmt.Sprintf("203.0.113.%d:%d/udp", 100+rng.IntN(50), 1+rng.IntN(60000))
	for _, args := range [][]string{
		{"lb", "backend", "set", fmt.Sprintf("%s:%d/udp", vip4, vipPort), addr, "--weight", fmt.Sprint(1 + rng.IntN(5))},
		{"lb", "vip", "add", vip},
		{"lb", "backend", "add", vip, addr, "--encap", "gue"},
		{"lb", "vip", "del", vip},
	} {
		if _, err := s.culvert(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// anyBackend returns the namespace of a backend.
func anyBackend(rng *rand.Rand) string { return []string{"b1", "b2"}[rng.IntN(2)] }

// sicken has a backend fail its checks for some seconds. It goes on serving.
func (s *soak) sicken(ctx context.Context, rng *rand.Rand) error {
	s.backend.Lock()
	defer s.backend.Unlock()
	ns := anyBackend(rng)
	health := func(status string) error {
		return s.run(ctx, ns, "curl", "-sS", "-m", "5", "-X", "PUT", "-d", status, "http://127.0.0.1/health")
	}
	if err := health("503"); err != nil {
		return err
	}
	sleep(ctx, time.Duration(8000+rng.IntN(8000))*time.Millisecond)
	if err := health("200"); err != nil {
		return err
	}
	return s.recovered(ctx)
}

// recovered waits until all backends are up.
func (s *soak) recovered(ctx context.Context) error {
	return s.until(ctx, "all backends are up again", func() error {
		err := s.ready(ctx)
		if err != nil && strings.HasPrefix(err.Error(), "backend ") {
			return err
		}
		return nil
	})
}

// killServer kills the web server of a backend, which takes its connections with it, and starts it again.
func (s *soak) killServer(ctx context.Context, rng *rand.Rand) error {
	s.backend.Lock()
	defer s.backend.Unlock()
	ns := anyBackend(rng)
	back := s.web.serverGone()
	defer back()
	if err := s.lab.Stop(lab.WebProcess(ns), syscall.SIGKILL); err != nil {
		return err
	}
	sleep(ctx, time.Duration(500+rng.IntN(5000))*time.Millisecond)
	if err := s.lab.StartWebServer(ns); err != nil {
		return err
	}
	return s.recovered(ctx)
}

// deafen has the UDP servers of a backend take nothing for a while.
func (s *soak) deafen(ctx context.Context, rng *rand.Rand) error {
	s.backend.Lock()
	defer s.backend.Unlock()
	ns := anyBackend(rng)
	if err := s.echo.deaf(ns, true); err != nil {
		return err
	}
	sleep(ctx, time.Duration(500+rng.IntN(3000))*time.Millisecond)
	return s.echo.deaf(ns, false)
}

// drain drains a backend of a VIP for some seconds.
func (s *soak) drain(ctx context.Context, rng *rand.Rand) error {
	s.backend.Lock()
	defer s.backend.Unlock()
	addr := backends[anyBackend(rng)]
	vip := []string{vip4.String() + ":80/tcp", "[" + vip6.String() + "]:80/tcp", fmt.Sprintf("%s:%d/udp", vip4, vipPort)}[rng.IntN(3)]
	for _, verb := range []string{"drain", "undrain"} {
		s.process.Lock()
		_, err := s.culvert(ctx, "lb", verb, vip, addr)
		s.process.Unlock()
		if err != nil {
			return err
		}
		if verb == "drain" {
			sleep(ctx, time.Duration(1000+rng.IntN(5000))*time.Millisecond)
		}
	}
	return nil
}

// rotate has the key that comes beside the AS's own be another one. The flows go under the AS's own key meanwhile, and under the
// new key then. Some packets more are sent under the former key.
func (s *soak) rotate(ctx context.Context, _ *rand.Rand) error {
	s.process.Lock()
	defer s.process.Unlock()
	if err := s.scionKeyed(nil); err != nil {
		return err
	}
	sleep(ctx, time.Second) // what was sent is there
	former := s.key
	s.keys++
	master := fmt.Appendf(nil, "soak's key %05d", s.keys)
	key := &scionKey{
		file:    filepath.Join(s.lab.Dir, fmt.Sprintf("soak%d.key", s.keys)),
		derived: base64.StdEncoding.EncodeToString(control.DeriveHFMacKey(master)),
	}
	if err := os.WriteFile(key.file, []byte(base64.StdEncoding.EncodeToString(master)+"\n"), 0o600); err != nil {
		return err
	}
	if err := s.write(s.wish, key); err != nil {
		return err
	}
	if err := s.reload(ctx); err != nil {
		return err
	}
	s.key = key
	if err := s.scionKeyed(key); err != nil {
		return err
	}
	if former == nil {
		return nil
	}
	frames, err := s.scionFrames(201, 203, former.derived, s.ends["as1/to-as2"], s.ends["rut/to-as1"])
	if err != nil {
		return err
	}
	f := s.flows[kindSCIONFormerKey]
	f.replace(frames)
	fd, err := socket(s.ends["as1/to-as2"])
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	for range 50 {
		if err := f.send(fd, &s.senders[0].refused); err != nil {
			return err
		}
		sleep(ctx, 5*time.Millisecond)
	}
	came, err := s.sinks["as3/to-as2"].Tags()
	if err != nil {
		return err
	}
	n := uint64(0)
	for _, x := range came[kindSCIONFormerKey*numbers:][:numbers] {
		n += x
	}
	if n > s.undue {
		s.trouble("%d packets under the former key have arrived after the reload", n-s.undue)
		s.undue = n
	}
	return os.Remove(former.file)
}

// end ends culvert's process in one way or another, and starts it again: with other files, or as another binary. Now and then it is
// killed while it takes over.
func (s *soak) end(ctx context.Context, rng *rand.Rand) error {
	s.process.Lock()
	defer s.process.Unlock()
	if time.Since(s.began) > s.stays() {
		return errLeft
	}
	defer s.changing()()
	way := rng.IntN(10)
	sig := syscall.SIGKILL
	if way < 5 {
		sig = syscall.SIGTERM
	}
	name := lab.CulvertProcess("rut")
	if err := s.lab.Stop(name, sig); err != nil {
		return err
	}
	sleep(ctx, time.Duration(rng.IntN(4000))*time.Millisecond)
	if way%3 == 0 {
		s.binary, s.other = s.other, s.binary
	}
	if way%2 == 0 {
		s.wish = another(rng)
		if err := s.write(s.wish, s.key); err != nil {
			return err
		}
	}
	start := func() error { return s.lab.StartCulvert("rut", s.binary, s.lab.All.Config) }
	if way >= 7 {
		if err := start(); err != nil {
			return err
		}
		sleep(ctx, time.Duration(rng.IntN(1500))*time.Millisecond)
		if err := s.lab.Stop(name, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if err := start(); err != nil {
		return err
	}
	return s.served(ctx)
}

// restartServices ends the SCION services of an AS and starts them again.
func (s *soak) restartServices(_ context.Context, rng *rand.Rand) error {
	as, err := s.lab.AS([]string{"as1", "rut", "as3"}[rng.IntN(3)])
	if err != nil {
		return err
	}
	return s.lab.RestartServices(as, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[rng.IntN(2)])
}

// restartRouter kills the router at the far end of a link, and starts it again.
func (s *soak) restartRouter(ctx context.Context, rng *rand.Rand) error {
	ns := []string{"as1", "as3"}[rng.IntN(2)]
	if err := s.lab.StopRouter(ns, syscall.SIGKILL); err != nil {
		return err
	}
	sleep(ctx, time.Duration(rng.IntN(8000))*time.Millisecond)
	return s.lab.StartRouter(ns, lab.Reference)
}
