// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// topology has a border router with a link by each of two ports. The other ends are the hosts at their far ends.
const topology = `{
  "isd_as": "1-ff00:0:110", "mtu": 1472, "dispatched_ports": "31000-32767", "attributes": ["core"],
  "border_routers": {"br1": {"internal_addr": "127.0.0.1:30042", "interfaces": {
    "1": {"underlay": {"local": "%s:50000", "remote": "%s:50001"}, "isd_as": "1-ff00:0:111", "link_to": "core", "mtu": 1472, "bfd": {"disable": true}},
    "2": {"underlay": {"local": "%s:50000", "remote": "%s:50002"}, "isd_as": "1-ff00:0:112", "link_to": "core", "mtu": 1472, "bfd": {"disable": true}}
  }}}
}
`

// scionFiles writes the files of a SCION router with a link by each port, culvert.toml among them, and returns their directory.
func (m *trial) scionFiles() (dir string) {
	m.Helper()
	dir, err := os.MkdirTemp("/", "scion") // where only root may write: the keys are there
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { os.RemoveAll(dir) })
	key := []byte("AAECAwQFBgcICQoLDA0ODw==\n")
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string][]byte{
		"topology.json":    fmt.Appendf(nil, topology, m.in.ip4(1), m.in.ip4(2), m.out.ip4(1), m.out.ip4(2)),
		"keys/master0.key": key, "keys/master1.key": key,
		"br.toml":      fmt.Appendf(nil, "[general]\nid = \"br1\"\nconfig_dir = %q\n", dir),
		"culvert.toml": fmt.Appendf(nil, "interfaces = [%q, %q]\nmode = %q\n[scion]\nconfig = \"br.toml\"\n", m.in.name, m.out.name, m.mode),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o700), os.WriteFile(at(name), text, 0o600)); err != nil {
			m.Fatal(err)
		}
	}
	return dir
}

// scionRow sends SCION packets from one link to the other.
func scionRow(m *trial) string {
	m.detach(m.T)
	dir := m.scionFiles()
	at := func(name string) string { return filepath.Join(dir, name) }
	if out, err := m.culvert("attach", "-c", at("culvert.toml")); err != nil {
		m.Fatalf("attach: %v: %s", err, out)
	}
	defer m.detach(m.T)
	if out, err := m.culvert("gen", "scion", "--topology", at("topology.json"), "--router", "br1", "--keys", at("keys"), "--ingress", "1", "--egress", "2",
		"--flows", "16", "--hop-fields", "3", "--size", "200,512,1400", "--dst-mac", m.in.mac.String(), "--src-mac", m.in.hop().String(), "-w", at("in.pcap")); err != nil {
		m.Fatalf("gen scion: %v: %s", err, out)
	}
	frames, err := readFrames(at("in.pcap"))
	if err != nil {
		m.Fatal(err)
	}
	m.ready(m.in, m.out)
	m.bed.out[m.out].forget()
	before := m.counted(m.T, m.in)
	for _, f := range frames {
		if err := m.in.far.Send(f); err != nil {
			m.Fatal(err)
		}
	}
	toNext := func(f []byte) bool {
		return len(f) > 40 && bytes.Equal(f[:6], m.out.hop()) && binary.BigEndian.Uint16(f[36:]) == 50002
	}
	m.settle(m.in, before, uint64(len(frames)))
	arrived := func() int { return len(m.bed.out[m.out].of(toNext)) }
	wait(func() bool { return arrived() >= len(frames) })
	time.Sleep(200 * time.Millisecond)
	c := m.counted(m.T, m.in).since(before)
	if arrived() != len(frames) || c.sum("fwd") != uint64(len(frames)) || c.sum("lost") != 0 {
		m.Errorf("%d packets were sent, %d have arrived, counted are %v", len(frames), arrived(), c)
	}
	return "yes"
}

// readFrames reads all frames of a pcap file.
func readFrames(path string) (frames [][]byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	for err == nil {
		var f []byte
		if f, _, err = r.ReadPacketData(); err == nil {
			frames = append(frames, f)
		}
	}
	if errors.Is(err, io.EOF) && len(frames) > 0 {
		err = nil
	}
	return frames, err
}
