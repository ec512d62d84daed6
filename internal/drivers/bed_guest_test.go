// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/guest/cards"
	"culvert/internal/testbed"
)

// program is culvert in a guest.
const program = "/culvert"

var wiresFlag = flag.String("wires", "", "the pairs of cards of this guest, joined by +")

// bed has all ports. Culvert is in one namespace with the near ends, the far ends are in another one.
type bed struct {
	t    *testing.T
	here *testbed.Namespace
	// ports are by driver.
	ports map[string][]*port
	// out has what has come out of each port.
	out map[*port]*arrivals
}

// newBed makes the namespaces and puts the cards of all wires into them.
func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, here: testbed.NewNamespace(t), ports: make(map[string][]*port), out: make(map[*port]*arrivals)}
	there := testbed.NewNamespace(t)
	b.here.Must(t, func() error {
		return errors.Join(testbed.WriteSysctl("ipv4/ip_forward", "1"), testbed.WriteSysctl("ipv6/conf/all/forwarding", "1"))
	})
	for n, text := range strings.Split(*wiresFlag, "+") {
		w, err := cards.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p := &port{driver: string(w.Near), number: n + 1, name: fmt.Sprintf("p%d", n+1), mac: cards.Near(n)}
		if w.Queues > 1 {
			p.driver = fmt.Sprintf("%s*%d", w.Near, w.Queues)
		}
		near, farLink := linkOf(t, cards.Near(n)), linkOf(t, cards.Far(n))
		if err := errors.Join(netlink.LinkSetDown(near), netlink.LinkSetName(near, p.name)); err != nil {
			t.Fatal(err)
		}
		b.here.Take(t, p.name)
		there.Take(t, farLink.Attrs().Name)
		there.Must(t, func() (err error) {
			l := linkOf(t, cards.Far(n))
			p.far, err = openFar(l)
			return err
		})
		b.add(p)
	}
	return b
}

// add gives a port of this namespace addresses, a neighbor and routes, and collects what comes out of it.
func (b *bed) add(p *port) {
	b.t.Helper()
	b.here.Must(b.t, func() error {
		if err := testbed.WriteSysctl("ipv6/conf/"+p.name+"/accept_dad", "0"); err != nil {
			return err
		}
		l, err := netlink.LinkByName(p.name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", p.name, err)
		}
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: p.ip4(1), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return err
		}
		if err := netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: p.ip4(2), HardwareAddr: p.hop(),
		}); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{
			Dst: &net.IPNet{IP: p.beyond4().Mask(net.CIDRMask(24, 32)), Mask: net.CIDRMask(24, 32)}, Gw: p.ip4(2),
		})
	})
	a := &arrivals{}
	b.ports[p.driver], b.out[p] = append(b.ports[p.driver], p), a
	go a.listen(p.far)
	b.t.Cleanup(func() { p.far.Close() })
}

// pair returns two ports of a driver.
func (b *bed) pair(t *testing.T, driver string) (in, out *port) {
	t.Helper()
	if len(b.ports[driver]) < 2 {
		t.Fatalf("this guest has %d cards of %s: give it two", len(b.ports[driver]), driver)
	}
	return b.ports[driver][0], b.ports[driver][1]
}

// culvert runs the binary beside the near ends and returns its output.
func (b *bed) culvert(args ...string) (out string, err error) {
	err = b.here.Do(func() error {
		text, err := exec.Command(program, args...).CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

// attach attaches what a configuration asks for until the test ends.
func (b *bed) attach(t *testing.T, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := b.culvert("attach", "-c", file)
	if err != nil {
		t.Fatalf("attach: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := b.culvert("detach", "--all"); err != nil {
			t.Errorf("detach: %v: %s", err, out)
		}
	})
}

// refused checks that a configuration is refused with a line that has one of the words, and that nothing is attached.
func (b *bed) refused(t *testing.T, config string, words ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := b.culvert("attach", "-c", file)
	if err == nil {
		_, _ = b.culvert("detach", "--all")
	}
	has := func(word string) bool { return strings.Contains(out, word) }
	if err == nil || !slices.ContainsFunc(words, has) || strings.Count(out, "\n") != 1 {
		t.Errorf("attach: %v: %s, want a line with one of %q", err, out, words)
	}
	if out, err := b.culvert("detach", "--all"); err != nil || strings.Contains(out, "detached") {
		t.Errorf("after a refusal, detach says %s (%v)", out, err)
	}
	t.Logf("refused: %s", out)
}

// ethtool runs ethtool(8) beside a port.
func (b *bed) ethtool(t *testing.T, p *port, args ...string) {
	t.Helper()
	b.here.Must(t, func() error {
		out, err := exec.Command("ethtool", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ethtool %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// native tells whether the driver of a port runs XDP, by attaching a program to it.
func (b *bed) native(t *testing.T, p *port) (is bool) {
	t.Helper()
	b.here.Must(t, func() error {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Type: ebpf.XDP, License: "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, testbed.XDPPass), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer prog.Close()
		l, err := netlink.LinkByName(p.name)
		if err != nil {
			return err
		}
		at, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.Attrs().Index, Flags: link.XDPDriverMode})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		if err != nil {
			return err
		}
		is = true
		return at.Close()
	})
	return is
}

// counts are packets by "verdict reason", and losses by "lost kind".
type counts map[string]uint64

// counted reads the counters of a port.
func (b *bed) counted(t *testing.T, p *port) counts {
	t.Helper()
	c := counts{}
	b.here.Must(t, func() error {
		planes, err := datapath.ListHere()
		if err != nil {
			return err
		}
		for _, plane := range planes {
			defer plane.Close()
			ports, err := plane.Ports()
			if err != nil {
				return err
			}
			for _, q := range ports {
				if q.Interface != p.name {
					continue
				}
				for _, r := range q.Reasons {
					c[r.Verdict+" "+r.Name] += r.Packets
				}
				for kind, n := range q.Losses {
					c["lost "+kind] += n
				}
			}
		}
		return nil
	})
	return c
}

// since returns what has changed since an earlier reading.
func (c counts) since(before counts) counts {
	d := counts{}
	for k, n := range c {
		if n != before[k] {
			d[k] = n - before[k]
		}
	}
	return d
}

// sum adds up the counts whose names begin with a word.
func (c counts) sum(word string) (n uint64) {
	for k, v := range c {
		if strings.HasPrefix(k, word+" ") {
			n += v
		}
	}
	return n
}
