// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"
)

// setDocument has a set from a file.
const setDocument = `[[filter.set]]
name = "bad"
file = %q

[[filter.rule]]
name = "bad"
action = "drop"
src = "@bad"
`

// changedShare is the share of a set's entries that a change takes out, and adds others for: 1 %.
const changedShare = 100

// distribute measures how a large set comes to all nodes, and then how a change of 1 % of it does.
func distribute(ctx context.Context, b *bed, r *rounds) error {
	r.note = fmt.Sprintf("a set of %d prefixes, to all nodes at once; a change takes 0.5 %% of them out and adds as many", r.entries)
	// Each set has entries of its own.
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	return r.do(ctx, false, func(int) (string, error) {
		prefixes := somePrefixes(random, r.entries)
		first, err := b.bring(ctx, r, "whole set", prefixes)
		if err != nil {
			return "", err
		}
		changed := max(r.entries/changedShare/2, 1)
		copy(prefixes[:changed], somePrefixes(random, changed))
		then, err := b.bring(ctx, r, "1 % changed", prefixes)
		return fmt.Sprintf("%.1f s, then %.1f s", first.Seconds(), then.Seconds()), err
	})
}

// bring has all nodes run a set, and adds how long that took and what each has read.
func (b *bed) bring(ctx context.Context, r *rounds, what string, prefixes []netip.Prefix) (time.Duration, error) {
	var text bytes.Buffer
	for _, p := range prefixes {
		fmt.Fprintln(&text, p)
	}
	path := b.dir("set.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return 0, err
	}
	for _, n := range b.nodes {
		n.plane.taken()
	}
	before, err := b.sample(ctx)
	if err != nil {
		return 0, err
	}
	out, total, err := b.apply(ctx, fmt.Sprintf(setDocument, path), b.dir("set.toml"), everywhere)
	if err != nil {
		return 0, err
	}
	after, err := b.sample(ctx)
	if err != nil {
		return 0, err
	}
	least, most := 0, 0
	for i, n := range b.nodes {
		took := n.plane.taken()
		if i == 0 {
			least = took
		}
		least, most = min(least, took), max(most, took)
	}
	if least <= 0 {
		return 0, fmt.Errorf("%s: a node has it without reading anything", what)
	}
	r.add(what+": in force", seconds, total.Seconds())
	r.add(what+": read by a node, least", "KiB", float64(least)/1024)
	r.add(what+": read by a node, most", "KiB", float64(most)/1024)
	r.add(what+": nodes that did not check in time", count, out.unchecked())
	r.add(what+": CPUs of etcd", count, after.since(before, metricCPU))
	r.add(what+": CPUs of nodes and operator", count, (after.own-before.own).Seconds()/after.at.Sub(before.at).Seconds())
	return total, nil
}

// somePrefixes returns random prefixes of IPv4, of 24 to 32 bits.
func somePrefixes(random *rand.Rand, n int) (all []netip.Prefix) {
	const shortest, longest = 24, 32
	for range n {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], random.Uint32())
		p, _ := netip.AddrFrom4(a).Prefix(shortest + random.IntN(longest-shortest+1)) // the length is one of IPv4
		all = append(all, p)
	}
	return all
}
