// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// Interfaces that the lab does not have by itself.
const (
	// secondPath is rut's second link to peer, by which the same prefixes can be reached.
	secondPath = "to-peer2"
	// spare is a link that reloads attach culvert to, and detach it from.
	spare = "spare"
)

// backends are the namespaces of the VIPs' backends, with their addresses in culvert's configuration.
var backends = map[string]string{"b1": "198.18.21.2", "b2": "198.18.22.2"}

var (
	vip4, vip6 = netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:80::80")
	// far4 and far6 are in prefixes that peer announces.
	far4, far6       = netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("2606:4700:4700::1111")
	client4, client6 = netip.MustParseAddr("198.18.1.2"), netip.MustParseAddr("2001:db8:1::2")
)

// bed is a lab of topology all with one more path to peer, and what counts there.
type bed struct {
	lab    *lab.Lab
	middle lab.AS
	config string // the lab's own file of culvert, its drop-in, and the SCION router's topology.json
	dropIn string
	topo   []byte
	ends   map[string]load.End // by namespace/interface
	sinks  map[string]*load.Sink
	echo   *echo
}

func newBed(ctx context.Context, o lab.Options) (b *bed, err error) {
	b = &bed{ends: map[string]load.End{}, sinks: map[string]*load.Sink{}}
	if b.lab, err = lab.Up(ctx, "all", o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.middle, err = b.lab.AS("rut"); err != nil {
		return nil, err
	}
	for path, to := range map[string]*string{b.lab.All.Config: &b.config, b.lab.All.DropIn: &b.dropIn} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		*to = string(text)
	}
	if b.topo, err = os.ReadFile(b.topology()); err != nil {
		return nil, err
	}
	if err := b.secondPath(ctx); err != nil {
		return nil, err
	}
	return b, b.count()
}

func (b *bed) topology() string { return filepath.Join(b.middle.ConfigDir, "topology.json") }

// secondPath adds the second path to peer, and the spare link.
func (b *bed) secondPath(ctx context.Context) error {
	addrs := func(host int) []netip.Prefix {
		return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("198.18.31.%d/24", host)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:31::%d/64", host))}
	}
	err := errors.Join(
		b.lab.Connect(lab.Link{NS: "rut", Name: secondPath, Addrs: addrs(1)}, lab.Link{NS: "peer", Name: "to-rut2", Addrs: addrs(2)}),
		b.lab.Connect(lab.Link{NS: "rut", Name: spare}, lab.Link{NS: "peer", Name: "spare"}),
	)
	if err != nil {
		return err
	}
	for _, at := range []struct{ ns, session, export, local, neighbor, as, more string }{
		{"peer", "rut", "export filter path_b;", "2", "1", "64497", "passive on;"},
		{"rut", "peer", "export where source = RTS_DEVICE;", "1", "2", "64496", "connect delay time 1; connect retry time 1;"},
	} {
		path := filepath.Join(b.lab.Dir, at.ns+"-bird.conf")
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		conf := string(text)
		if at.ns == "peer" {
			conf = fmt.Sprintf("include %q;\n", b.paths()) + strings.ReplaceAll(conf, "export where source = RTS_STATIC;", "export filter path_a;") +
				fmt.Sprintf("include %q;\n", b.churned())
		}
		other := map[string]string{"64497": "64496", "64496": "64497"}[at.as]
		for family, net := range map[string]string{"4": "198.18.31.", "6": "2001:db8:31::"} {
			conf += fmt.Sprintf("protocol bgp %s%sb {\n\tlocal %s%s as %s;\n\tneighbor %s%s as %s;\n\t%s\n\terror wait time 1, 2;\n\tipv%s { import all; %s };\n}\n",
				at.session, family, net, at.local, at.as, net, at.neighbor, other, at.more, family, at.export)
		}
		if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
			return err
		}
	}
	if err := errors.Join(b.prefer("a"), os.WriteFile(b.churned(), nil, 0o644)); err != nil {
		return err
	}
	return errors.Join(b.bird(ctx, "peer", "configure"), b.bird(ctx, "rut", "configure"))
}

// paths is the file with peer's preference for a path, churned that with the routes that come and go.
func (b *bed) paths() string   { return filepath.Join(b.lab.Dir, "peer-paths.conf") }
func (b *bed) churned() string { return filepath.Join(b.lab.Dir, "peer-churned.conf") }

// prefer has peer announce that path a or b is better, once it reads its configuration again. only-a withdraws path b.
func (b *bed) prefer(path string) error {
	meds := map[string]int{"a": 20, "b": 20}
	meds[strings.TrimPrefix(path, "only-")] = 10
	text := ""
	for name, med := range meds {
		accept := fmt.Sprintf("bgp_med = %d; accept;", med)
		if strings.HasPrefix(path, "only-") && med == 20 {
			accept = "reject;"
		}
		text += fmt.Sprintf("filter path_%s { if source != RTS_STATIC then reject; %s }\n", name, accept)
	}
	return os.WriteFile(b.paths(), []byte(text), 0o644)
}

// bird has BIRD in a namespace do something.
func (b *bed) bird(ctx context.Context, ns string, command ...string) error {
	out, err := b.lab.Run(ctx, ns, append([]string{"birdcl", "-s", filepath.Join(b.lab.Dir, ns+".ctl")}, command...)...)
	if err != nil {
		return err
	}
	for _, bad := range []string{"error", "failed", "cannot"} {
		if strings.Contains(strings.ToLower(string(out)), bad) {
			return fmt.Errorf("BIRD in %s: %s: %s", ns, strings.Join(command, " "), strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// run runs a program in a namespace.
func (b *bed) run(ctx context.Context, ns string, argv ...string) error {
	_, err := b.lab.Run(ctx, ns, argv...)
	return err
}

// culvert runs a verb of culvert in rut.
func (b *bed) culvert(ctx context.Context, args ...string) ([]byte, error) {
	return b.lab.Run(ctx, "rut", append([]string{b.lab.Culvert}, args...)...)
}

// count opens all ends and begins to count at those where traffic arrives.
func (b *bed) count() error {
	for _, ns := range b.lab.Namespaces {
		for _, i := range ns.Interfaces {
			var netns *load.Netns
			err := b.lab.Do(ns.Name, func() (err error) {
				netns, err = load.CurrentNetns()
				return err
			})
			if err != nil {
				return err
			}
			b.ends[ns.Name+"/"+i.Name] = load.End{Netns: netns, Name: i.Name, Index: i.Index, MAC: i.HardwareAddr()}
		}
	}
	for _, at := range []string{"as1/to-as2", "as3/to-as2", "peer/to-rut", "peer/to-rut2", "client/to-rut"} {
		s, err := load.NewSink(b.ends[at], load.SinkOptions{
			MinLen: frameLen, MarkOffset: markAt, Mark: mark, Tags: kinds * numbers, TagOffset: tagAt,
		})
		if err != nil {
			return err
		}
		b.sinks[at] = s
	}
	b.echo = newEcho(b.lab, kindLB4, kindLB6)
	for ns := range backends {
		if err := b.listen(ns); err != nil {
			return err
		}
	}
	return nil
}

// listen starts the UDP servers of a backend.
func (b *bed) listen(ns string) error {
	return b.echo.listen(ns, netip.AddrPortFrom(vip4, vipPort), netip.AddrPortFrom(vip6, vipPort))
}

// close ends counting and takes the lab down.
func (b *bed) close() (err error) {
	if b.echo != nil {
		for ns := range backends {
			b.echo.close(ns)
		}
	}
	for _, s := range b.sinks {
		err = errors.Join(err, s.Close())
	}
	for _, e := range b.ends {
		err = errors.Join(err, e.Netns.Close())
	}
	return errors.Join(err, b.lab.Down())
}

// plane calls look with the data plane of rut. While culvert changes it, it may not be there for a moment.
func (b *bed) plane(look func(*datapath.Instance) error) error {
	var err error
	for range 50 {
		var here []*datapath.Instance
		err = b.lab.Do("rut", func() (err error) {
			here, err = datapath.ListHere()
			return err
		})
		if err == nil && len(here) != 1 {
			err = fmt.Errorf("%d data planes in rut, want one", len(here))
		}
		if err == nil {
			err = look(here[0])
		}
		for _, i := range here {
			i.Close()
		}
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// scionFrames makes packets from one SCION interface of rut to another one, with hop fields under a forwarding key in base64, or
// under that of the AS.
func (b *bed) scionFrames(ingress, egress int, key string, from, into load.End) ([][]byte, error) {
	o := scionpkt.GenerateOptions{
		Topology: b.topology(), Router: b.middle.RouterID, Key: key, Flows: 32, HopFields: 4, Sizes: []int{frameLen}, Family: "4",
		Ingress: ingress, Egress: egress, SrcMAC: from.MAC.String(), DstMAC: into.MAC.String(), Output: "-",
	}
	if key == "" {
		o.Keys = b.middle.Keys
	}
	var file bytes.Buffer
	if err := scionpkt.GenerateFile(o, &file); err != nil {
		return nil, err
	}
	r, err := pcapgo.NewReader(&file)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for range o.Flows {
		frame, _, err := r.ReadPacketData()
		if err != nil {
			return nil, err
		}
		all = append(all, frame)
	}
	return all, nil
}

// udpFrames makes UDP packets of client.
func (b *bed) udpFrames(src, dst netip.Addr, port uint16, flows int) ([][]byte, error) {
	u := load.UDPTraffic{
		Src: src, Dst: dst, Sizes: []int{frameLen}, Flows: flows, Port: port,
		DstMAC: b.ends["rut/to-client"].MAC, SrcMAC: b.ends["client/to-rut"].MAC,
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	return u.Frames(b.ends["client/to-rut"])
}
