// SPDX-License-Identifier: Apache-2.0

// Command soak runs everything at once for an hour: a lab with all stages on one machine, counted traffic for each of them, and
// disturbances at random. At the end it accounts for every packet. 'make soak' runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"culvert/internal/lab"
)

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", time.Hour, "how long")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1e6), "of what is done at random")
	flag.StringVar(&o.other, "other", "", "another binary of culvert, for upgrades (default: the same)")
	flag.StringVar(&o.only, "only", "", "make only disturbances whose names contain this")
	flag.StringVar(&o.bonds, "bonds", "", "the program with the tests of bonds, for guests (default: none)")
	culvert := flag.String("culvert", "bin/culvert", "the binary of culvert")
	peers := flag.String("peers", "bin/peers", "the directory of the reference programs")
	page := flag.String("page", "", "also write the last page to this file")
	flag.Parse()
	if *page != "" {
		o.dir = filepath.Dir(*page)
	}
	ok, err := soakAll(o, *culvert, *peers, *page)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// soakAll sets the lab up, works, and takes it down. ok is false if something was not as it should be.
func soakAll(o options, culvert, peers, page string) (ok bool, err error) {
	if o.duration < time.Minute {
		return false, fmt.Errorf("a duration of %s: take a minute at least", o.duration)
	}
	if os.Geteuid() != 0 {
		return false, errors.New("it makes network namespaces and loads eBPF programs: run it as root")
	}
	if o.other == "" {
		o.other = culvert
	}
	for _, path := range []*string{&culvert, &peers, &o.other} {
		if *path, err = filepath.Abs(*path); err != nil {
			return false, err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := &soak{options: o, out: os.Stdout, binary: culvert, wish: wish{weights: [2]int{1, 1}}, bonds: &bonds{test: o.bonds, culvert: culvert}}
	s.say("soak of %s, seed %d", o.duration, o.seed)
	s.bed, err = newBed(ctx, lab.Options{
		Name: "soak", BFD: time.Second, MTU: 1400, Culvert: culvert, Out: s.out,
		Peers: lab.Peers{Bin: peers},
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.bed.close()) }()
	if err := s.prepare(ctx); err != nil {
		return false, err
	}
	for _, a := range s.allAgitators() {
		if strings.Contains(a.name, o.only) {
			s.agitators = append(s.agitators, a)
		}
	}
	if err := s.work(ctx); err != nil {
		return false, err
	}
	return s.finish(page)
}
