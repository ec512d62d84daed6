// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func TestSmoke(t *testing.T) {
	runtime.LockOSThread()
	orig, _ := netns.Get()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { netns.Set(orig); ns.Close(); orig.Close() }()
	v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}
	if err := netlink.LinkAdd(v); err != nil {
		t.Fatal(err)
	}
	c := Config{LocalIA: 1<<48 | 1, PortStart: 31000, PortEnd: 32767,
		Links: []Link{
			{Name: "internal", Local: netip.MustParseAddrPort("10.0.0.1:30042")},
			{Name: "1", Scope: ScopeExternal, IfID: 1, Local: netip.MustParseAddrPort("10.1.0.1:50000"), Remote: netip.MustParseAddrPort("10.1.0.2:50000")},
		}, Interfaces: []Interface{{ID: 1, Link: 1, Type: LinkCore}}}
	i, err := Attach(Options{Name: "br1", Interfaces: []string{"v0"}}, c)
	if err != nil {
		t.Fatal(err)
	}
	info, _ := i.prog.Info()
	t.Log(info.VerifiedInstructions())
	t.Log(i.Attached(), Reasons())
	i.Close()
	i, err = Attach(Options{Name: "br1", Interfaces: []string{"v0"}}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(i.Attached(), i.dir)
	if err := i.DetachAll(); err != nil {
		t.Fatal(err)
	}
}
