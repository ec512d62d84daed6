// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/show"
)

// DefaultSamples is how many addresses of each family are asked for unless said otherwise.
const DefaultSamples = 10000

// mostShown is how many differences are shown one by one.
const mostShown = 20

// mostCandidates bounds the differences of a family that are looked into: a mirror with so much wrong is wrong.
const mostCandidates = 100000

// readTime is how long it is waited for a mirror that is not current: its tables may be being read.
const readTime = time.Second

// CheckOptions say what to check.
type CheckOptions struct {
	// Name is that of the data plane; "" is the only IP router of this network namespace.
	Name string
	// Samples is how many addresses of each family the kernel is asked for one by one.
	Samples int
	// Progress gets a line that is written over, if it is not nil.
	Progress io.Writer
}

// Checked is what `culvert route check -j` prints. Fields are added in later versions, never renamed.
type Checked struct {
	Router string        `json:"router"`
	IPv4   FamilyChecked `json:"ipv4"`
	IPv6   FamilyChecked `json:"ipv6"`
	// OK is true if both mirrors are current and nothing differs.
	OK bool `json:"ok"`
	// Differences are the first of them.
	Differences []Difference `json:"differences"`
}

// FamilyChecked counts what was compared of a family.
type FamilyChecked struct {
	Condition
	// Prefixes are those of the kernel's tables local, main and default.
	Prefixes int `json:"prefixes"`
	// Addresses were compared with the tables, Samples with the kernel's own answer. For Asked of them the fast
	// path asks the kernel itself. Changed differed at first, and shortly after did not.
	Addresses   int `json:"addresses"`
	Samples     int `json:"samples"`
	Asked       int `json:"asked"`
	Changed     int `json:"changed"`
	Differences int `json:"differences"`
}

// Difference is an address for which the mirror is wrong.
type Difference struct {
	Address  string `json:"address"`
	FastPath string `json:"fast_path"`
	Kernel   string `json:"kernel"`
	Text     string `json:"text"`
}

// Check compares the mirror with the kernel, and writes what differs. A difference is an error, and so is a mirror
// that is not current.
func Check(o CheckOptions, asJSON bool, out io.Writer) error {
	inst, err := openHere(o.Name)
	if err != nil {
		return err
	}
	defer inst.Close()
	c, err := check(inst, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = show.JSON(out, c)
	} else {
		err = c.writeText(out)
	}
	if err != nil || c.OK {
		return err
	}
	if n := c.IPv4.Differences + c.IPv6.Differences; n > 0 {
		return fmt.Errorf("router %s: %w at %s", c.Router, errDiffers, addresses(n))
	}
	return fmt.Errorf("router %s: the mirror is not current: see 'culvert route show'", c.Router)
}

// checker compares one family.
type checker struct {
	v        *view
	k        *kernel
	is6      bool
	in       int
	from     netip.Addr
	result   *FamilyChecked
	shown    *[]Difference
	progress *progress
	// suspects are addresses for which mirror and kernel do not agree at first sight.
	suspects map[netip.Addr]bool
}

func check(inst *datapath.Instance, o CheckOptions) (*Checked, error) {
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	defer v.close()
	v.patience = readTime
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	c := &Checked{Router: inst.Name(), Differences: []Difference{}}
	for _, is6 := range []bool{false, true} {
		f := &checker{
			v: v, k: k, is6: is6, result: &c.IPv4, shown: &c.Differences, suspects: make(map[netip.Addr]bool),
			progress: newProgress(o.Progress, familyName(is6)),
		}
		if is6 {
			f.result = &c.IPv6
		}
		err := f.run(o.Samples)
		f.progress.end()
		if err != nil {
			return nil, err
		}
	}
	c.OK = c.IPv4.good() && c.IPv6.good()
	return c, nil
}

// good tells whether nothing is wrong with a family. What is left to the kernel as a whole cannot be wrong.
func (f FamilyChecked) good() bool {
	return f.Differences == 0 && f.By != Stale
}

func (c *checker) run(samples int) error {
	var err error
	if c.result.Condition, err = c.v.condition(c.is6); err != nil || c.result.By != Mirror {
		return err
	}
	c.packet()
	e, err := newExpected(c.k, c.is6, c.progress.reading)
	if err != nil {
		return err
	}
	c.result.Prefixes = len(e.prefixes)
	if err := c.tables(e); err != nil {
		return err
	}
	if err := c.samples(e.prefixes, samples); err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	// What was found while the mirror went stale says nothing.
	c.result.Condition, err = c.v.condition(c.is6)
	return err
}

// packet makes up what a forwarded packet comes in by and from. Without such a device the kernel is asked as for
// packets of this host.
func (c *checker) packet() {
	to := map[bool]netip.Addr{false: someSource4, true: someSource6}[c.is6]
	in := c.v.someDevice(to, c.k)
	if dev := c.v.devs[in]; c.is6 && dev.Forward6 || !c.is6 && dev.Forward4 {
		if from := c.k.guest(in, c.is6); from.IsValid() {
			c.in, c.from = in, from
		}
	}
}

func (c *checker) ask(to netip.Addr) (kernelRoute, error) {
	r, err := c.k.ask(to, c.from, c.in)
	if err != nil || r.kind != refused {
		return r, err
	}
	return c.k.ask(to, netip.Addr{}, 0) // the source is not what is checked
}

// tables compares the ends of each prefix, what prefixes the mirror has, and the neighbours, with the kernel's tables.
func (c *checker) tables(e *expected) error {
	for n, p := range e.prefixes {
		if n%4096 == 0 {
			c.progress.comparing(n, len(e.prefixes))
		}
		for _, addr := range around(p) {
			if err := c.table(e, addr); err != nil {
				return err
			}
		}
	}
	// What the kernel has no prefix for may be left in the mirror.
	var err error
	c.v.tables[c.is6].walk(func(addr netip.Addr) {
		if err == nil {
			err = c.table(e, addr)
		}
	})
	if err != nil {
		return err
	}
	for n := range c.k.neighs {
		if n.addr.Is6() == c.is6 {
			if err := c.table(e, n.addr); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) table(e *expected, addr netip.Addr) error {
	if !addr.IsValid() {
		return nil
	}
	if _, never := noDestination(addr); never {
		return nil
	}
	found, err := c.v.find(addr)
	if err != nil {
		return err
	}
	c.result.Addresses++
	if found.asks() {
		c.result.Asked++
		return nil
	}
	if w, sure := e.find(addr); !sure || c.k.differs(addr, found, w) != "" {
		c.suspect(addr)
	}
	return nil
}

func (c *checker) suspect(addr netip.Addr) {
	if len(c.suspects) < mostCandidates {
		c.suspects[addr] = true
	}
}

// samples asks the kernel for addresses in and around prefixes.
func (c *checker) samples(prefixes []netip.Prefix, n int) error {
	if len(prefixes) == 0 {
		return nil
	}
	for i := range n {
		if i%512 == 0 {
			c.progress.sampling(i, n)
		}
		p := prefixes[rand.IntN(len(prefixes))]
		addr := randomIn(p)
		if at := rand.IntN(5); at < 4 {
			addr = around(p)[at]
		}
		if !addr.IsValid() {
			continue
		}
		if _, never := noDestination(addr); never {
			continue
		}
		text, asked, err := c.compare(addr)
		if err != nil {
			return err
		}
		c.result.Samples++
		if asked {
			c.result.Asked++
		}
		if text != nil {
			c.suspect(addr)
		}
	}
	return nil
}

// compare looks an address up in the mirror and asks the kernel. There is no difference if nil is returned.
func (c *checker) compare(addr netip.Addr) (d *Difference, asked bool, err error) {
	found, err := c.v.find(addr)
	if err != nil || found.asks() {
		return nil, err == nil, err
	}
	r, err := c.ask(addr)
	if err != nil {
		return nil, false, err
	}
	text := c.k.differs(addr, found, r.way)
	if text == "" {
		return nil, false, nil
	}
	return &Difference{
		Address: addr.String(), FastPath: c.v.text(addr, found, c.k), Kernel: c.k.text(r), Text: text,
	}, false, nil
}

// settle judges the suspects: the kernel is asked, and what still differs once more after a while, in which a change
// gets from the kernel to the mirror.
func (c *checker) settle() error {
	for round := range 2 {
		if len(c.suspects) == 0 {
			return nil
		}
		if round > 0 {
			time.Sleep(settleTime)
			if err := errors.Join(c.v.refresh(), c.k.refresh()); err != nil {
				return err
			}
		}
		left := slices.SortedFunc(maps.Keys(c.suspects), netip.Addr.Compare)
		for n, addr := range left {
			if n%512 == 0 {
				c.progress.judging(n, len(left))
			}
			d, _, err := c.compare(addr)
			switch {
			case err != nil:
				return err
			case d == nil:
				delete(c.suspects, addr)
				if round > 0 {
					c.result.Changed++
				}
			case round > 0:
				c.result.Differences++
				if len(*c.shown) < mostShown {
					*c.shown = append(*c.shown, *d)
				}
			}
		}
	}
	return nil
}

func randomIn(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for n := range b {
		random := byte(rand.UintN(256))
		switch rest := p.Bits() - 8*n; {
		case rest <= 0:
			b[n] = random
		case rest < 8:
			b[n] |= random & (0xff >> rest)
		}
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
