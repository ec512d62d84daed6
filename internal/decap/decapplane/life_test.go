// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// endsHere returns List by interface.
func endsHere(t *testing.T) map[string]End {
	t.Helper()
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]End)
	for _, d := range all {
		byName[d.Interface] = d
	}
	return byName
}

// throughKernel runs a frame through the program on an interface.
func throughKernel(t *testing.T, iface string, frame []byte) {
	t.Helper()
	dir, ok, err := dirHere()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	path, ok := pins.On(dir, testbed.Device(t, iface).Index)
	if !ok {
		t.Fatalf("nothing on %s", iface)
	}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	b := &bed{program: p, total: make(map[string]uint64)}
	b.run(t, frame)
}

func packetsOf(d End) map[string]uint64 {
	n := make(map[string]uint64)
	for _, r := range d.Reasons {
		n[r.Name] = r.Packets
	}
	return n
}

func TestDecapAttach(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v.2", "v3")
	testbed.SetMAC(t, &net.Interface{Name: "v0", HardwareAddr: decapMAC})
	if got := endsHere(t); len(got) != 0 {
		t.Fatalf("listed %v before anything was attached", got)
	}
	o := defaults()
	if err := Attach([]string{"v0", "v.2"}, o); err != nil {
		t.Fatal(err)
	}
	got := endsHere(t)
	if len(got) != 2 || !reflect.DeepEqual(got["v0"].Options, o) || len(got["v.2"].Reasons) != 0 {
		t.Errorf("listed %+v", got)
	}
	// An end of tunnels is not listed as a data plane.
	if all, err := datapath.ListHere(); err != nil || len(all) != 0 {
		t.Errorf("instances: %v, %v", all, err)
	}
	gue := tunnelled{kind: "gue1", outer: 4, inner: 4, port: 7000}.frame()
	throughKernel(t, "v0", gue)

	// Attach with other options replaces the program and keeps the counters.
	program := testbed.XDPProgram(t, "v0")
	o.GUEPort, o.VIPs, o.From = 7000, []netip.Addr{decapVIP[4]}, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	if now := testbed.XDPProgram(t, "v0"); now == 0 || now == program {
		t.Errorf("program %d after %d", now, program)
	}
	throughKernel(t, "v0", gue)
	got = endsHere(t)
	if n := packetsOf(got["v0"]); n["gue"] != 1 || n["other"] != 1 || len(n) != 2 || !reflect.DeepEqual(got["v0"].Options, o) {
		t.Errorf("counted %v with %+v", n, got["v0"].Options)
	}

	o.Generic = true
	if err := Attach([]string{"v0"}, o); err == nil || !strings.Contains(err.Error(), "interface v0 has it in native mode") {
		t.Errorf("attached in another mode: %v", err)
	}

	for _, name := range []string{"v0", "v.2"} {
		if off, err := Detach(name); !off || err != nil {
			t.Errorf("detaching from %s: %v, %v", name, off, err)
		}
	}
	if off, err := Detach("v0"); off || err != nil {
		t.Errorf("detaching twice: %v, %v", off, err)
	}
	if off, err := Detach("nosuch"); off || err != nil {
		t.Errorf("detaching from nothing: %v, %v", off, err)
	}
	if left := testbed.XDPProgram(t, "v0"); left != 0 {
		t.Errorf("program %d is left", left)
	}
	if _, err := os.Stat(testbed.SpaceDir(t)); !os.IsNotExist(err) {
		t.Errorf("pins left: %v\n%s", err, testbed.Tree(t))
	}
}

// TestDecapGenericAndHost attaches in generic mode, with the addresses of the host.
func TestDecapGenericAndHost(t *testing.T) {
	testbed.InNamespace(t)
	dev := testbed.AddVeth(t, "v0", "v1")
	o := Options{GUEPort: DefaultGUEPort, Generic: true}
	if err := Attach([]string{"v0"}, o); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Fatalf("attached without an address: %v", err)
	}
	l, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	if err := testbed.PrepareEnd("v0", "10.0.0.11/24", "fd00::11/64"); err != nil {
		t.Fatal(err)
	}
	if err := Attach([]string{dev.Name}, o); err != nil {
		t.Fatal(err)
	}
	got := endsHere(t)["v0"].Options
	local := make(map[netip.Addr]bool)
	for _, a := range got.Local {
		local[a] = true
	}
	if !got.Generic || !local[decapBackend[4]] || !local[decapBackend[6]] || local[netip.MustParseAddr("127.0.0.1")] || local[netip.MustParseAddr("::1")] {
		t.Errorf("attached with %+v", got)
	}
	if off, err := Detach("v0"); !off || err != nil {
		t.Error(off, err)
	}
}

func TestDecapRefuses(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	o := defaults()
	for _, tt := range []struct {
		interfaces []string
		want       string
	}{
		{[]string{"v0", "nosuch"}, "interface nosuch"},
		{[]string{"v0", "lo"}, "lo has no Ethernet address"},
		{nil, "interface"},
	} {
		if err := Attach(tt.interfaces, o); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", tt.interfaces, err, tt.want)
		}
	}
	if testbed.XDPProgram(t, "v0") != 0 {
		t.Error("attached to v0 in spite of the error")
	}
	testbed.AttachForeign(t, "v0")
	if err := Attach([]string{"v2", "v0"}, o); err == nil || !strings.Contains(err.Error(), "interface v0 carries XDP program") ||
		!strings.Contains(err.Error(), "named foreign") {
		t.Errorf("in the place of a foreign program: %v", err)
	}
	if testbed.XDPProgram(t, "v2") != 0 {
		t.Error("attached to v2 in spite of the error")
	}
	inst, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := Attach([]string{"v2"}, o); err == nil || !strings.Contains(err.Error(), "culvert's data plane br1") {
		t.Errorf("in the place of culvert's own: %v", err)
	}
	if err := inst.DetachAll(); err != nil {
		t.Fatal(err)
	}
	inst.Close()
	if err := Attach([]string{"v2"}, o); err != nil {
		t.Fatal(err)
	}
	if _, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v2"}}); err == nil ||
		!strings.Contains(err.Error(), "of 'culvert lb decap'") {
		t.Errorf("a data plane in its place: %v", err)
	}
}

// TestDecapAllOrNone: if Attach fails for one of several interfaces, the others are unchanged.
func TestDecapAllOrNone(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Fatal(err)
	}
	before := defaults()
	if err := Attach([]string{"v0"}, before); err != nil {
		t.Fatal(err)
	}
	program := testbed.XDPProgram(t, "v0")
	o := before
	o.GUEPort = 7
	if err := Attach([]string{"v0", "v2", "br0"}, o); err == nil || !strings.Contains(err.Error(), "attaching to br0: its driver has no native XDP") {
		t.Errorf("attached to a bridge: %v", err)
	}
	if now := testbed.XDPProgram(t, "v0"); now != program || testbed.XDPProgram(t, "v2") != 0 {
		t.Errorf("program %d on v0 after %d, %d on v2", now, program, testbed.XDPProgram(t, "v2"))
	}
	if got := endsHere(t); len(got) != 1 || !reflect.DeepEqual(got["v0"].Options, before) {
		t.Errorf("listed %+v", got)
	}
}

// TestDecapInterfacesChange renames interfaces, deletes them and makes them again.
func TestDecapInterfacesChange(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	o := defaults()
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		t.Helper()
		l, err := netlink.LinkByName(from)
		if err == nil {
			err = netlink.LinkSetDown(l)
		}
		if err == nil {
			err = netlink.LinkSetName(l, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rename("v0", "w0")
	testbed.AddVeth(t, "v0", "u1")
	if err := Attach([]string{"v0", "w0"}, o); err != nil {
		t.Fatal(err)
	}
	if got := endsHere(t); len(got) != 2 || got["v0"].Interface == "" || got["w0"].Interface == "" {
		t.Errorf("listed %v\n%s", got, testbed.Tree(t))
	}
	if off, err := Detach("w0"); !off || err != nil {
		t.Error(off, err)
	}
	testbed.DeleteDevice(t, "v0")
	if got := endsHere(t); len(got) != 1 || got["v0"].Unattached != pins.Gone {
		t.Errorf("listed %v after the interface was deleted", got)
	}
	testbed.AddVeth(t, "v0", "u1")
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	if got := endsHere(t); len(got) != 1 || got["v0"].Unattached != "" {
		t.Errorf("listed %v\n%s", got, testbed.Tree(t))
	}
	testbed.DeleteDevice(t, "v0")
	if err := Forget(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(testbed.SpaceDir(t), pinDir)); !os.IsNotExist(err) {
		t.Errorf("pins left: %v\n%s", err, testbed.Tree(t))
	}
}
