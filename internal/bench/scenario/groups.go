// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"strconv"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
)

// group is a set of rows of scenario veth that take turns and are compared with each other. They have the same frame length
// and number of CPUs.
type group struct {
	// size is the length of the frames in bytes, without the frame check sequence.
	size int
	// min is set if size is that of the shortest SCION packets.
	min bool
	// cpus is 1 if generator, device and sink share a CPU, 2 if the generator has one and the others another.
	cpus int
	// rows are the rows of the group.
	rows []peer.Candidate
}

// suffix is the suffix of the names of the group's rows. It is empty for the main group.
func (g *group) suffix() string {
	s := ""
	switch {
	case g.min:
		s = "@" + peer.Shortest
	case g.size != peer.FrameSize:
		s = "@" + strconv.Itoa(g.size)
	}
	if g.cpus > 1 {
		s += fmt.Sprintf("@%dcpu", g.cpus)
	}
	return s
}

// defaultSizes are the frame lengths that are measured on one CPU by default, defaultSizesTwoCPUs those on two.
var (
	defaultSizes        = []string{strconv.Itoa(peer.FrameSize), "64", peer.Shortest, "512", "1400"}
	defaultSizesTwoCPUs = []string{strconv.Itoa(peer.FrameSize)}
)

// groups returns the groups that the options select, the main one first. If only sizes are given, those of
// defaultSizesTwoCPUs are also measured on two CPUs.
func (o Options) groups() ([]*group, error) {
	sizes, cpus := o.Sizes, o.CPUs
	if len(sizes) == 0 {
		sizes = defaultSizes
	}
	if len(cpus) == 0 {
		cpus = []int{1, 2}
	}
	var all []*group
	for _, n := range cpus {
		if n != 1 && n != 2 {
			return nil, fmt.Errorf("%w number of CPUs %d: give 1 or 2", load.ErrUnknown, n)
		}
		for _, word := range sizes {
			g, err := newGroup(word, n)
			if err != nil {
				return nil, err
			}
			bothGiven := len(o.CPUs) > 0 && len(o.Sizes) > 0
			if n > 1 && !bothGiven && !slices.Contains(defaultSizesTwoCPUs, word) {
				continue
			}
			if !slices.ContainsFunc(all, func(other *group) bool { return other.suffix() == g.suffix() }) {
				all = append(all, g)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int { return b.rank() - a.rank() })
	return all, nil
}

// rank is 1 for the main group and 0 for all others.
func (g *group) rank() int {
	if g.suffix() == "" {
		return 1
	}
	return 0
}

// newGroup makes a group without rows. word is a frame length from the options.
func newGroup(word string, cpus int) (*group, error) {
	if word == peer.Shortest {
		size, err := peer.ShortestSCION()
		return &group{size: size, min: true, cpus: cpus}, err
	}
	size, err := strconv.Atoi(word)
	if err != nil || size < load.MinUDPFrame || size > peer.MaxSize {
		return nil, fmt.Errorf("%w frame size %q: give %d to %d bytes, without the frame check sequence, or %s",
			load.ErrUnknown, word, load.MinUDPFrame, peer.MaxSize, peer.Shortest)
	}
	return &group{size: size, cpus: cpus}, nil
}

// share gives each group its rows of those chosen. If sizes were given, a group without any rows is an error.
func (o Options) share(groups []*group, chosen []peer.Candidate) error {
	least, err := peer.ShortestSCION()
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, c := range chosen {
			if c.SCION && g.size < least || c.MainGroupOnly && len(o.Rows) == 0 && g.suffix() != "" {
				continue
			}
			g.rows = append(g.rows, c)
		}
		if len(g.rows) == 0 && len(o.Sizes) > 0 {
			return fmt.Errorf("%w --size %d: no row asked for can have such frames, SCION packets take at least %d bytes (--size %s)",
				ErrOption, g.size, least, peer.Shortest)
		}
	}
	return nil
}
