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
	here, there *testbed.Namespace
	// ports are by driver.
	ports map[string][]*port
	// out has what has come out of each port.
	out map[*port]*arrivals
	// attached is the configuration that is attached, "" for none.
	attached string
	// wires is the number of wires of which bonds are made.
	wires int
}

// newBed makes the namespaces and puts the cards of all wires into them.
func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{here: testbed.NewNamespace(t), there: testbed.NewNamespace(t), ports: make(map[string][]*port), out: make(map[*port]*arrivals)}
	b.here.Must(t, func() error {
		return errors.Join(testbed.WriteSysctl("ipv4/ip_forward", "1"), testbed.WriteSysctl("ipv4/conf/all/send_redirects", "0"))
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
		lend(t, b.here, p.mac, p.name)
		lend(t, b.there, cards.Far(n), p.name)
		b.there.Must(t, func() (err error) {
			l, err := netlink.LinkByName(p.name)
			if err == nil {
				p.far, err = openFar(l)
			}
			return err
		})
		b.add(t, p)
	}
	b.addTap(t, len(b.ports)+20)
	b.addTap(t, len(b.ports)+20)
	t.Cleanup(func() { _, _ = b.culvert("detach", "--all") }) // a test that fails may leave it attached
	return b
}

// add gives a port of this namespace addresses, a neighbor and routes, and collects what comes out of it.
func (b *bed) add(t *testing.T, p *port) {
	t.Helper()
	b.here.Must(t, p.configure)
	a := &arrivals{}
	b.ports[p.driver], b.out[p] = append(b.ports[p.driver], p), a
	go a.listen(p.far)
	t.Cleanup(func() { p.far.Close() })
}

// up sets a port up with its addresses, neighbor and routes, of which it loses some when it is set down.
func (p *port) up() error { return p.join(p.name, p.ip4, p.beyond4()) }

// upVLAN does the same for a VLAN device above it.
func (p *port) upVLAN(id int) error {
	l, err := netlink.LinkByName(p.name)
	if err != nil {
		return err
	}
	v := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("%s.%d", p.name, id), ParentIndex: l.Attrs().Index}, VlanId: id}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("add %s: %w", v.Name, err)
	}
	return p.join(v.Name, p.tagged4, p.beyondTagged4())
}

// join gives a device the first address of a network, the second one as a neighbor and a route by that.
func (p *port) join(device string, address func(byte) net.IP, beyond net.IP) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s up: %w", device, err)
	}
	prefix := net.CIDRMask(24, 32)
	if err := netlink.AddrReplace(l, &netlink.Addr{IPNet: &net.IPNet{IP: address(1), Mask: prefix}}); err != nil {
		return err
	}
	if err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: address(2), HardwareAddr: p.hop(),
	}); err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: &net.IPNet{IP: beyond.Mask(prefix), Mask: prefix}, Gw: address(2)})
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
func (b *bed) culvert(args ...string) (out string, err error) { return b.run(program, args...) }

// file writes a configuration for a test.
func file(t *testing.T, config string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "culvert.toml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// attach attaches what a configuration asks for.
func (b *bed) attach(t *testing.T, config string) {
	t.Helper()
	if out, err := b.culvert("attach", "-c", file(t, config)); err != nil {
		t.Fatalf("attach: %v: %s", err, out)
	}
	b.attached = config
}

// detach takes culvert off all ports.
func (b *bed) detach(t *testing.T) {
	t.Helper()
	b.attached = ""
	if out, err := b.culvert("detach", "--all"); err != nil {
		t.Errorf("detach: %v: %s", err, out)
	}
}

// refused checks that a configuration is refused with a line that has one of the words, and that nothing is attached. It returns the
// line.
func (b *bed) refused(t *testing.T, config string, words ...string) (line string) {
	t.Helper()
	return b.refusedFile(t, file(t, config), words...)
}

// refusedFile does the same for a file.
func (b *bed) refusedFile(t *testing.T, path string, words ...string) (line string) {
	t.Helper()
	out, err := b.culvert("attach", "-c", path)
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
	return out
}

// run runs a program beside the near ends and returns its output.
func (b *bed) run(program string, args ...string) (out string, err error) {
	err = b.here.Do(func() error {
		text, err := exec.Command(program, args...).CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

// must runs a program beside the near ends, which must succeed.
func (b *bed) must(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := b.run(program, args...); err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
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
					// LACP comes in all the time.
					if p.bond == nil || r.Name != "other" {
						c[r.Verdict+" "+r.Name] += r.Packets
					}
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
