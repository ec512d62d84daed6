// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scionproto/scion/private/topology"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// referenceAPI is the address where the reference router serves its metrics, in its namespace.
const referenceAPI = "127.0.0.1:30442"

// Reference is scionproto's border router, in a process of its own.
type Reference struct {
	traffic SCIONTraffic
	// program is the router's path. Empty stands for the one that 'culvert lab build' builds.
	program string
	// CPUs are the CPUs that it may use. Empty stands for all.
	CPUs []int
	// files has the router's configuration.
	files   *Scratch
	in      load.End
	listen  io.Closer
	process *Process
}

// Attach implements Device.
func (d *Reference) Attach(ctx context.Context, p Path) (err error) {
	if err := d.startIn(ctx, p); err != nil {
		return err
	}
	d.listen, err = load.Listen(p.In)
	return err
}

// startIn starts the router in the path. It leaves out the XDP program that Path.In needs.
func (d *Reference) startIn(ctx context.Context, p Path) (err error) {
	program, err := d.find()
	if err != nil {
		return err
	}
	d.in = p.In
	steps := []func() error{
		func() error { return p.In.Assign(netip.PrefixFrom(scionIn.local.Addr(), 24)) },
		func() error { return p.Out.Assign(netip.PrefixFrom(scionOut.local.Addr(), 24)) },
		func() error { return p.Out.Assign(netip.PrefixFrom(scionInternal.Addr(), 24)) },
		func() error { return p.In.SetNeighbor(scionIn.remote.Addr(), p.Source.MAC) },
		func() error { return p.Out.SetNeighbor(scionOut.remote.Addr(), p.Sink.MAC) },
		func() error { d.files, err = NewScratch(); return err },
		func() error { return d.configure(d.files.Path()) },
		func() error {
			d.process, err = Start(p.In.Netns, d.files.Path(), d.CPUs, program, "--config", "br.toml")
			return err
		},
		func() error { return d.waitReady(ctx) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Available implements Optional: it checks that the router's program exists.
func (d *Reference) Available() error {
	_, err := d.find()
	return err
}

// find returns the absolute path of the router.
func (d *Reference) find() (string, error) {
	program := d.program
	if program == "" {
		peers, err := lab.DefaultPeers()
		if err != nil {
			return "", err
		}
		program = filepath.Join(peers.Bin, "router")
	}
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("find the reference router: %w: build it with 'culvert lab build', or leave the row out",
			err)
	}
	return filepath.Abs(program)
}

// configure writes topology, keys and configuration of the router into a directory. BFD is off, because the far ends do not
// answer it.
func (d *Reference) configure(dir string) error {
	typeIn, typeOut := d.traffic.linkTypes()
	network := scionpkt.Network{
		IA: scionIA, Core: true, MTU: scionMTU, RouterID: scionRouterID, PortStart: 31000, PortEnd: 32767,
		Links: []scionpkt.Link{
			{Scope: scionpkt.Internal, Local: scionInternal},
			{Scope: scionpkt.External, IfID: 1, Local: scionIn.local, Remote: scionIn.remote},
			{Scope: scionpkt.External, IfID: 2, Local: scionOut.local, Remote: scionOut.remote},
		},
		Interfaces: []scionpkt.Interface{
			referenceInterface(1, typeIn, scionIn),
			referenceInterface(2, typeOut, scionOut),
		},
	}
	topo, err := network.TopologyJSON()
	if err != nil {
		return fmt.Errorf("write the reference router's topology: %w", err)
	}
	key := base64.StdEncoding.EncodeToString([]byte(scionMasterKey))
	config := fmt.Sprintf("[general]\nid = %q\nconfig_dir = %q\n[metrics]\nprometheus = %q\n"+
		"[router.bfd]\ndisable = true\n[log.console]\nlevel = \"error\"\n", scionRouterID, dir, referenceAPI)
	return errors.Join(
		os.Mkdir(filepath.Join(dir, "keys"), 0o700),
		os.WriteFile(filepath.Join(dir, "topology.json"), topo, 0o600),
		os.WriteFile(filepath.Join(dir, "keys", "master0.key"), []byte(key), 0o600),
		os.WriteFile(filepath.Join(dir, "keys", "master1.key"), []byte(key), 0o600),
		os.WriteFile(filepath.Join(dir, "br.toml"), []byte(config), 0o600),
	)
}

func referenceInterface(id int, t topology.LinkType, l scionLink) scionpkt.Interface {
	return scionpkt.Interface{
		ID: uint16(id), Type: t, Neighbor: l.ia, RemoteID: 1, Link: id, Local: l.local, Remote: l.remote,
	}
}

// waitReady waits until the router serves its metrics, which it does once its sockets are open.
func (d *Reference) waitReady(ctx context.Context) error {
	const limit = 20 * time.Second
	end := time.Now().Add(limit)
	for {
		_, err := readMetrics(d.in.Netns, referenceAPI)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case d.process.Ended() || time.Now().After(end):
			return fmt.Errorf("start the reference router: %w: %s", err, d.process.LastLine())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// metricsWait bounds the wait for the metrics of a router. It is long because the router may just have been flooded.
const metricsWait = time.Minute

// readMetrics reads the metrics of a reference router, as text. api is its address in namespace s.
func readMetrics(s *load.Netns, api string) (text []byte, err error) {
	client := http.Client{Timeout: metricsWait, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = s.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	reply, err := client.Get("http://" + api + "/metrics")
	if err == nil {
		defer reply.Body.Close()
		text, err = io.ReadAll(reply.Body)
	}
	if err != nil {
		return nil, fmt.Errorf("read the reference router's metrics: %w", err)
	}
	return text, nil
}

// Frames implements Device.
func (d *Reference) Frames(p Path, common [][]byte) ([][]byte, error) {
	router, err := benchRouter()
	if err != nil {
		return nil, err
	}
	return d.traffic.frames(router, p, len(common))
}

// Losses counts the packets that the router dropped, and those that its sockets had no room for.
func (d *Reference) Losses() (map[string]uint64, error) {
	return referenceLosses(d.in.Netns, referenceAPI)
}

// referenceLosses counts the packets that a reference router dropped, and those that the sockets in its namespace had no
// room for.
func referenceLosses(s *load.Netns, api string) (map[string]uint64, error) {
	text, err := readMetrics(s, api)
	if err != nil {
		return nil, err
	}
	lost := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		reason, packets, ok := droppedByReference(line)
		if ok {
			lost["reference_"+reason] += packets
		}
	}
	err = s.Do(func() error {
		for _, file := range []string{"snmp", "snmp6"} {
			counters, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil && !(file == "snmp6" && errors.Is(err, os.ErrNotExist)) {
				return fmt.Errorf("read the namespace's UDP counters: %w", err)
			}
			for _, name := range []string{"InErrors", "NoPorts", "SndbufErrors"} {
				lost["socket_"+name] += udpCounter(string(counters), name)
			}
		}
		return nil
	})
	return lost, err
}

// droppedByReference reads a line of metrics that counts dropped packets. ok is false for all other lines.
func droppedByReference(line string) (reason string, packets uint64, ok bool) {
	labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
	if !ok || !strings.HasPrefix(labels, "router_dropped_pkts_total{") {
		return "", 0, false
	}
	if _, rest, found := strings.Cut(labels, `reason="`); found {
		reason, _, _ = strings.Cut(rest, `"`)
	}
	n, err := strconv.ParseFloat(value, 64)
	return strings.ReplaceAll(reason, " ", "_"), uint64(n), err == nil
}

// udpCounter returns a UDP counter from the text of /proc/net/snmp, which has a line of names and one of values, or of
// /proc/net/snmp6, which has a name and a value on each line. It is 0 if absent.
func udpCounter(text, name string) uint64 {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "Udp6"+name {
			n, _ := strconv.ParseUint(fields[1], 10, 64)
			return n
		}
		if len(fields) == 0 || fields[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		if i := slices.Index(names, name); i > 0 && i < len(fields) {
			n, _ := strconv.ParseUint(fields[i], 10, 64)
			return n
		}
	}
	return 0
}

// Detach implements Device.
func (d *Reference) Detach() error {
	var err error
	if d.process != nil {
		err = d.process.Stop(2 * time.Second)
	}
	if d.listen != nil {
		err = errors.Join(err, d.listen.Close())
	}
	return errors.Join(err, d.files.Close())
}
