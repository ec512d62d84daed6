// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// bpffs is the directory of culvert's pins.
const bpffs = "/sys/fs/bpf/culvert"

// netnsInode returns the inode number of a namespace, which names the directory of its pins.
func netnsInode(t *testing.T, l *lab.Lab, ns string) uint32 {
	t.Helper()
	n, err := l.Namespace(ns)
	check(t, err)
	var st syscall.Stat_t
	check(t, syscall.Stat(filepath.Join("/run/netns", n.NetNS), &st))
	return uint32(st.Ino)
}

// pins returns the paths of all pins of a namespace.
func pins(t *testing.T, l *lab.Lab, ns string) []string {
	t.Helper()
	var found []string
	dir := filepath.Join(bpffs, fmt.Sprint(netnsInode(t, l, ns)))
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			found = append(found, strings.TrimPrefix(path, dir))
		}
		return nil
	})
	return found
}

// xdpProgram returns the ID of the XDP program on an interface, 0 if there is none.
func xdpProgram(t *testing.T, l *lab.Lab, ns, iface string) (id uint32) {
	t.Helper()
	check(t, l.Do(ns, func() error {
		link, err := netlink.LinkByName(iface)
		if err == nil && link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached {
			id = link.Attrs().Xdp.ProgId
		}
		return err
	}))
	return id
}

// findPlane opens the data plane in a namespace. It returns nil if there is none.
func findPlane(t *testing.T, l *lab.Lab, ns string) *datapath.Instance {
	t.Helper()
	var here []*datapath.Instance
	check(t, l.Do(ns, func() (err error) {
		here, err = datapath.ListHere()
		return err
	}))
	if len(here) > 1 {
		t.Fatalf("%d data planes in %s, want at most 1", len(here), ns)
	}
	if len(here) == 0 {
		return nil
	}
	t.Cleanup(here[0].Close)
	return here[0]
}

// plane opens the data plane in a namespace.
func plane(t *testing.T, l *lab.Lab, ns string) *datapath.Instance {
	t.Helper()
	p := findPlane(t, l, ns)
	if p == nil {
		t.Fatalf("no data plane in %s", ns)
	}
	return p
}

// linkIndex returns the index of a link in the data plane's configuration.
func linkIndex(t *testing.T, p *datapath.Instance, name string) int {
	t.Helper()
	for i, l := range scionplane.Of(p).Config().Links {
		if l.Name == name {
			return i
		}
	}
	t.Fatalf("%s has no link %s", p.Name(), name)
	return 0
}

// ready tells whether every link but the internal one is up and has a next hop.
func ready(t *testing.T, p *datapath.Instance) bool {
	t.Helper()
	states, err := scionplane.Of(p).LinkStates()
	check(t, err)
	for _, s := range states[1:] {
		if !s.Up || s.NextHop.IfIndex == 0 {
			return false
		}
	}
	return true
}

// tally has counters of a data plane: packets by "verdict reason", packets over a limit by "limited reason", and losses by
// "lost kind".
type tally map[string]uint64

// count reads the counters of one interface.
func count(t *testing.T, p *datapath.Instance, iface string) tally {
	t.Helper()
	ports, err := p.Ports()
	check(t, err)
	for _, port := range ports {
		if port.Interface == iface {
			return countOf(port)
		}
	}
	return tally{}
}

// countOf returns the counters of an interface.
func countOf(port stats.Port) tally {
	c := tally{}
	for _, r := range port.Reasons {
		verdict := r.Verdict
		if r.Limited {
			verdict = "limited"
		}
		c[verdict+" "+r.Name] += r.Packets
	}
	for kind, n := range port.Losses {
		c["lost "+kind] += n
	}
	return c
}

// since returns the differences to earlier counters, without counters that have not changed.
func (c tally) since(before tally) tally {
	d := tally{}
	for k, n := range c {
		if n != before[k] {
			d[k] = n - before[k]
		}
	}
	return d
}

// only returns the counters whose names end with one of the words.
func (c tally) only(words ...string) tally {
	d := tally{}
	for k, n := range c {
		for _, w := range words {
			if strings.HasSuffix(k, w) {
				d[k] = n
			}
		}
	}
	return d
}

// lost returns the sum of all losses after the verdict.
func (c tally) lost() (n uint64) {
	for k, v := range c {
		if strings.HasPrefix(k, "lost ") {
			n += v
		}
	}
	return n
}

func withPort(a netip.AddrPort, port uint16) string {
	return netip.AddrPortFrom(a.Addr(), port).String()
}
