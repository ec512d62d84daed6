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

// DefaultSamples is the default of CheckOptions.Samples.
const DefaultSamples = 10000

// mostShown is how many differences are shown one by one.
const mostShown = 20

// mostCandidates bounds the suspects of a family. With more, the mirror is wrong anyway.
const mostCandidates = 100000

// readTime is how long to wait for a mirror that is not current, since its process may be reading the tables.
const readTime = time.Second

// CheckOptions say what to check.
type CheckOptions struct {
	// Name is the data plane's; "" means the only IP router of this network namespace.
	Name string
	// Samples is for how many addresses of each family the kernel is asked, one by one.
	Samples int
	// Progress gets a progress line that is updated in place. It may be nil.
	Progress io.Writer
}

// Checked is what `culvert route check -j` prints. Fields are added in later versions, never renamed.
type Checked struct {
	Router string        `json:"router"`
	IPv4   FamilyChecked `json:"ipv4"`
	IPv6   FamilyChecked `json:"ipv6"`
	// OK is true if both mirrors are current and nothing differs.
	OK bool `json:"ok"`
	// Differences are the first few. FamilyChecked counts all.
	Differences []Difference `json:"differences"`
}

// FamilyChecked counts what was compared of a family.
type FamilyChecked struct {
	Condition
	// Prefixes counts those of the kernel's tables local, main and default.
	Prefixes int `json:"prefixes"`
	// Addresses counts the addresses that were compared with the tables, and Samples those that were compared with
	// the kernel's answer. For Asked of them the programs ask the kernel. Changed differed only for a moment.
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

// Check compares the mirror with the kernel, and writes what differs. It returns an error if anything differs or a mirror
// is not current.
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
	// suspects are addresses for which mirror and kernel seemed to differ.
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

// good reports whether nothing is wrong with a family. A family that is left to the kernel cannot be wrong.
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
	// If the mirror has gone stale meanwhile, the results mean nothing.
	c.result.Condition, err = c.v.condition(c.is6)
	return err
}

// packet chooses a device and a source for forwarded packets. Without a suitable device, the kernel is asked as for
// packets that this host sends.
func (c *checker) packet() {
	in := c.v.inputDevice(exampleSource(c.is6), c.k)
	if dev := c.v.devs[in]; c.is6 && dev.Forward6 || !c.is6 && dev.Forward4 {
		if from := c.k.onLinkAddr(in, c.is6); from.IsValid() {
			c.in, c.from = in, from
		}
	}
}

func (c *checker) ask(to netip.Addr) (kernelRoute, error) {
	r, err := c.k.ask(to, c.from, c.in)
	if err != nil || r.kind != refused {
		return r, err
	}
	return c.k.ask(to, netip.Addr{}, 0) // the kernel refused the source, which is not checked here
}

// tables compares the mirror with the kernel's tables at the ends of the kernel's prefixes, in each prefix of the mirror,
// and at each neighbor.
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
	// The mirror may have prefixes that the kernel no longer has.
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

// table compares the mirror with the kernel's tables at one address.
func (c *checker) table(e *expected, addr netip.Addr) error {
	if !addr.IsValid() {
		return nil
	}
	if _, never := neverForwarded(addr); never {
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

// samples compares the mirror with the kernel's answer for n random addresses in and next to prefixes.
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
		if _, never := neverForwarded(addr); never {
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

// compare looks an address up in the mirror and asks the kernel. It returns nil if they do not differ. asked is true if
// the programs ask the kernel.
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

// settle compares each suspect with the kernel's answer. Those that still differ are compared once more after the time that
// a change takes from the kernel to the mirror, and then counted as differences or as changed.
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
		suspects := slices.SortedFunc(maps.Keys(c.suspects), netip.Addr.Compare)
		for n, addr := range suspects {
			if n%512 == 0 {
				c.progress.settling(n, len(suspects))
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
