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
)

// bpffs is where culvert pins.
const bpffs = "/sys/fs/bpf/culvert"

// netnsInode is how pins name a namespace.
func netnsInode(t *testing.T, l *lab.Lab, ns string) uint32 {
	t.Helper()
	n, err := l.Namespace(ns)
	check(t, err)
	var st syscall.Stat_t
	check(t, syscall.Stat(filepath.Join("/run/netns", n.NetNS), &st))
	return uint32(st.Ino)
}

// pins lists everything that is pinned for a namespace.
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

// xdpProgram is the ID of the XDP program on an interface, 0 for none.
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

// findPlane opens the data plane in a namespace, or answers nil.
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

// linkIndex is the place of a link in the data plane's configuration.
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

// ready tells whether every link but the internal one can be used.
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

// tally is what a data plane has counted: packets by "verdict reason", by "limited reason" for
// those that did not get to the slow path, and by "lost kind".
type tally map[string]uint64

// count reads the counters of one interface.
func count(t *testing.T, p *datapath.Instance, iface string) tally {
	t.Helper()
	ports, err := p.Ports()
	check(t, err)
	c := tally{}
	for _, port := range ports {
		if port.Interface != iface {
			continue
		}
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
	}
	return c
}

// since gives what has changed, without what has not.
func (c tally) since(before tally) tally {
	d := tally{}
	for k, n := range c {
		if n != before[k] {
			d[k] = n - before[k]
		}
	}
	return d
}

// only keeps the counters whose name ends with one of the words.
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

// lost is what was lost after the verdict.
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
