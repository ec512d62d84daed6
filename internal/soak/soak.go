// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"culvert/internal/datapath"
)

// clock is the format of times in culvert's log, too.
const clock = "15:04:05.000Z"

// Kinds of counted traffic. An answer's kind is the one behind that of its request.
const (
	kindSCION = iota
	kindSCIONBack
	kindSCIONFormerKey
	kindRouted4
	kindRouted6
	kindAllowed
	kindDropped
	kindBlocked
	kindLimited
	kindLB4
	kindLB4Answers
	kindLB6
	kindLB6Answers
	kinds
)

// options say how long and what.
type options struct {
	duration time.Duration
	seed     uint64
	// only, if not empty, is what the names of disturbances contain that are made.
	only string
	// other is another binary of culvert for upgrades.
	other string
	// dir is where profiles of the heap and the samples are kept, "" for nowhere.
	dir string
	// bonds is the program with the tests of bonds, "" to have none.
	bonds string
}

// soak is a run.
type soak struct {
	options
	*bed
	out     io.Writer
	began   time.Time
	flows   [kinds]*flow
	senders []*sender
	web     *web

	// process is held by whoever needs the process of culvert to stay as it is.
	process sync.Mutex
	binary  string
	wish    wish
	key     *scionKey
	keys    int
	undue   uint64 // packets that have arrived under a key that had been taken out
	// backend is held by whoever takes a backend away: there is always one left.
	backend sync.Mutex
	// path is held by whoever changes peer's paths.
	path sync.Mutex

	agitators []*agitator
	reloads   atomic.Uint64
	programs  atomic.Uint64
	bonds     *bonds

	// changes counts what begins and ends to be in force, and usual says that this is the usual configuration.
	changes atomic.Uint64
	usual   atomic.Bool

	mu       sync.Mutex
	troubles []string
	samples  []sample
	// before are the counters at the beginning, last the most recent ones.
	before, last counters
	// first is what the interfaces had received and counted at the beginning. attached are those that are compared.
	first    map[string]portLine
	attached []string
}

// trouble notes what should not have happened.
func (s *soak) trouble(format string, args ...any) {
	text := time.Now().UTC().Format(clock) + " " + strings.TrimSpace(fmt.Sprintf(format, args...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubles = append(s.troubles, text)
	s.say("TROUBLE %s", text)
}

func (s *soak) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// sleep waits. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// prepare makes all flows and brings the first configuration into force.
func (s *soak) prepare(ctx context.Context) error {
	if err := s.write(s.wish, nil); err != nil {
		return err
	}
	if err := s.reload(ctx); err != nil {
		return err
	}
	as1, as3, client := s.ends["as1/to-as2"], s.ends["as3/to-as2"], s.ends["client/to-rut"]
	for n, f := range []*flow{
		{name: "scion as1 > as3", rate: 600}, {name: "scion as3 > as1", rate: 200}, {name: "scion, former key", none: true},
		{name: "routed IPv4", rate: 500}, {name: "routed IPv6", rate: 300},
		{name: "filter: counted", rate: 100}, {name: "filter: dropped", rate: 100, exact: "rule dropped", none: true},
		{name: "filter: in a set", rate: 100, exact: "rule blocked", none: true}, {name: "filter: limited", rate: 50, exact: "rule limited over"},
		{name: "balanced IPv4", rate: 300}, {name: "its answers, IPv4"}, {name: "balanced IPv6", rate: 200}, {name: "its answers, IPv6"},
	} {
		f.number = n
		s.flows[n] = f
	}
	if err := s.scionKeyed(nil); err != nil {
		return err
	}
	for _, u := range []struct {
		kind     int
		src, dst netip.Addr
		port     uint16
	}{
		{kindRouted4, client4, far4, port}, {kindRouted6, client6, far6, port}, {kindAllowed, client4, far4, port + 1},
		{kindDropped, client4, far4, port + 2}, {kindBlocked, s.lab.All.Blocked, far4, port}, {kindLimited, client4, far4, port + 3},
		{kindLB4, client4, vip4, vipPort}, {kindLB6, client6, vip6, vipPort},
	} {
		frames, err := s.udpFrames(u.src, u.dst, u.port, 32)
		if err != nil {
			return err
		}
		s.flows[u.kind].replace(frames)
	}
	s.senders = []*sender{
		{from: as1, flows: s.flows[kindSCION : kindSCION+1]}, {from: as3, flows: s.flows[kindSCIONBack : kindSCIONBack+1]},
		{from: client, flows: append(append([]*flow{}, s.flows[kindRouted4:kindLB4+1]...), s.flows[kindLB6])},
	}
	s.web = &web{lab: s.lab, vips: []netip.AddrPort{netip.AddrPortFrom(vip4, 80), netip.AddrPortFrom(vip6, 80)}, trouble: s.trouble}
	for _, net := range []string{"198.18.31.2", "2001:db8:31::2"} {
		if err := s.until(ctx, "a ping to "+net, func() error { return s.run(ctx, "rut", "ping", "-n", "-c", "1", "-W", "1", net) }); err != nil {
			return err
		}
	}
	return s.until(ctx, "both paths to peer and all backends", func() error { return s.ready(ctx) })
}

// scionKeyed has the SCION flows go under a key.
func (s *soak) scionKeyed(key *scionKey) error {
	derived := ""
	if key != nil {
		derived = key.derived
	}
	forth, err := s.scionFrames(201, 203, derived, s.ends["as1/to-as2"], s.ends["rut/to-as1"])
	if err != nil {
		return err
	}
	back, err := s.scionFrames(203, 201, derived, s.ends["as3/to-as2"], s.ends["rut/to-as3"])
	if err != nil {
		return err
	}
	s.flows[kindSCION].replace(forth)
	s.flows[kindSCIONBack].replace(back)
	return nil
}

// ready returns an error while a backend is not up, or a path of peer is not established.
func (s *soak) ready(ctx context.Context) error {
	out, err := s.culvert(ctx, "lb", "show", "-j")
	if err != nil {
		return err
	}
	var all struct {
		VIPs []struct {
			VIP      string
			Backends []struct {
				Backend string
				Health  struct{ State string }
			}
		}
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return fmt.Errorf("decode the list of VIPs: %w", err)
	}
	for _, v := range all.VIPs {
		if !strings.Contains(v.VIP, vip4.String()+":") && !strings.Contains(v.VIP, vip6.String()) {
			continue // its backends are not checked
		}
		for _, b := range v.Backends {
			if b.Health.State != "up" {
				return fmt.Errorf("backend %s of %s is %s", b.Backend, v.VIP, b.Health.State)
			}
		}
	}
	return s.bothPaths(ctx)
}

// bothPaths returns an error while rut does not know both paths to the counted destinations.
func (s *soak) bothPaths(ctx context.Context) error {
	for dst, paths := range map[netip.Addr][]string{far4: {"[peer4 ", "[peer4b "}, far6: {"[peer6 ", "[peer6b "}} {
		out, err := s.lab.Run(ctx, "rut", "birdcl", "-s", s.lab.Dir+"/rut.ctl", "show", "route", "for", dst.String())
		if err != nil {
			return err
		}
		for _, path := range paths {
			if !strings.Contains(string(out), path) {
				return fmt.Errorf("rut has no route to %s by %s]", dst, path)
			}
		}
	}
	return nil
}

// until waits until done returns no error.
func (s *soak) until(ctx context.Context, what string, done func() error) error {
	const patience = 20 * time.Minute
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = done(); err == nil {
			return nil
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s: not after %s: %w", what, patience, err)
}

// work does everything at once for the time that is asked for. An interruption makes it shorter.
func (s *soak) work(ctx context.Context) error {
	for _, i := range s.lab.Namespaces[0].Interfaces {
		if i.Name != spare { // culvert is not always attached to it
			s.attached = append(s.attached, i.Name)
		}
	}
	var err error
	if s.first, err = s.still(); err != nil {
		return err
	}
	if s.before, err = s.read(); err != nil {
		return err
	}
	s.last, s.began = s.before, time.Now()
	ctx, stop := context.WithTimeout(ctx, s.duration)
	defer stop()
	var traffic, rest sync.WaitGroup
	for _, x := range s.senders {
		traffic.Go(func() {
			if err := x.run(ctx); err != nil {
				s.trouble("%v", err)
			}
		})
	}
	for n := range 5 {
		rng := s.rng(100 + n)
		traffic.Go(func() { s.web.run(ctx, rng, n >= 3) })
	}
	for n, a := range s.agitators {
		rng := s.rng(n)
		rest.Go(func() { s.agitate(ctx, a, rng) })
	}
	rest.Go(func() { s.each(ctx, s.sampleEvery(), s.watch) })
	rest.Go(func() { s.bonds.run(ctx, s) })
	rest.Go(func() {
		if sleep(ctx, s.stays()) {
			s.keepFirst(ctx)
		}
	})
	rest.Go(func() { s.each(ctx, sayEvery, s.progress) })
	traffic.Wait()
	rest.Wait()
	s.profile("last")
	return nil
}

func (s *soak) rng(n int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(n))) }

// usualShare is how often the configuration is the usual one, between others: every second time.
const usualShare = 2

// endShare is up to when processes are ended: then one stays, with all else going on, so that what it leaks is seen.
const endShare = 0.6

// stays is when the process begins to stay.
func (s *soak) stays() time.Duration {
	return time.Duration(endShare * float64(s.duration)).Round(time.Second)
}

// keepFirst keeps a profile of the process that stays, with the usual configuration if that comes soon.
func (s *soak) keepFirst(ctx context.Context) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !s.usual.Load(); {
		if !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
	s.process.Lock()
	defer s.process.Unlock()
	s.profile("first")
}

// changing says that another configuration may come into force from now on. The function that it returns says which one has.
func (s *soak) changing() (done func()) {
	s.usual.Store(false)
	s.changes.Add(1)
	return func() {
		s.usual.Store(s.wish.isUsual())
		s.changes.Add(1)
	}
}

// inForce returns how often the configuration has changed, and whether the usual one is in force.
func (s *soak) inForce() (changes uint64, usual bool) { return s.changes.Load(), s.usual.Load() }

// reload reads the configuration again. The caller holds process.
func (s *soak) reload(ctx context.Context) error {
	defer s.changing()()
	out, err := s.culvert(ctx, "reload", "-j")
	var r struct {
		NewProgram bool `json:"new_program"`
		OK         bool
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err == nil && !r.OK {
		err = errors.New("not in force")
	}
	if err != nil {
		return fmt.Errorf("reload: %w: %s", err, strings.TrimSpace(string(out)))
	}
	s.reloads.Add(1)
	if r.NewProgram {
		s.programs.Add(1)
	}
	return nil
}

// served waits until a process serves the data plane and answers.
func (s *soak) served(ctx context.Context) error {
	return s.until(ctx, "culvert serves again", func() error {
		err := s.plane(func(i *datapath.Instance) error {
			if !i.Served() {
				return errors.New("no process serves the data plane")
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = s.culvert(ctx, "reload", "--dry-run")
		return err
	})
}

// finish writes the last page to standard output, and to a file if there is a name.
func (s *soak) finish(name string) (ok bool, err error) {
	l, err := s.account()
	if err != nil {
		return false, err
	}
	var page strings.Builder
	ok = s.page(&page, l)
	fmt.Fprint(s.out, page.String())
	if name != "" {
		err = os.WriteFile(name, []byte(page.String()), 0o644)
	}
	if s.dir != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(s.dir, "samples.tsv"), []byte(table(s.samples)), 0o644))
	}
	return ok, err
}
