// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/scionproto/scion/private/keyconf"
	"github.com/scionproto/scion/router/control"
)

// GenerateOptions say which packets GenerateFile writes.
type GenerateOptions struct {
	// Topology is the name of a topology.json file. Router is the name of the border router in it.
	Topology, Router string
	// Key is a forwarding key in base64. Keys is a directory with master0.key and master1.key, from
	// which the forwarding key is derived. One of the two must be set.
	Key, Keys string
	// Flows is the number of flows. Each has its own flow label, source host and source port, and one
	// packet of each size.
	Flows int
	// HopFields is the number of hop fields in the path.
	HopFields int
	// Sizes are the lengths of the Ethernet frames in bytes, without the frame check sequence.
	Sizes []int
	// Family is the family of the SCION host addresses: "4", "6" or "both". The topology determines the
	// underlay's family.
	Family string
	// Directions are the names of directions. Empty means all that the topology has.
	Directions []string
	// Ingress and Egress are interface IDs. 0 means the inside of the AS, negative any interface.
	Ingress, Egress int
	// Hosts are the end hosts of the AS. Empty means the address after the router's own.
	Hosts []string
	// SrcMAC and DstMAC are the MAC addresses of every frame. Empty means made-up ones.
	SrcMAC, DstMAC string
	// Output is the name of the pcap file, of a device or of a FIFO, or "-" for standard output.
	Output string
}

// GenerateFile writes packets to a pcap file. If it returns an error, an existing file is unchanged, and
// no new one exists. A device or FIFO may have received a part.
func GenerateFile(o GenerateOptions, stdout io.Writer) error {
	n, err := o.network()
	if err != nil {
		return err
	}
	g, err := newGenerator(n, o)
	if err != nil {
		return err
	}
	if o.Output == "-" {
		return g.write(stdout)
	}
	if err := writeOutput(o.Output, stdout, g.write); err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return fmt.Errorf("write %s: %w", o.Output, err)
	}
	return nil
}

// network reads the files that the options name.
func (o *GenerateOptions) network() (*Network, error) {
	text, err := os.ReadFile(o.Topology)
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	n, err := FromTopology(text, o.Router)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Topology, err)
	}
	n.Now = uint32(time.Now().Unix())
	if n.Key, err = readKey(o.Key, o.Keys); err != nil {
		return nil, err
	}
	hosts := o.Hosts
	if len(hosts) == 0 {
		hosts = []string{n.Links[0].Local.Addr().Next().String()}
	}
	for i, h := range hosts {
		a, err := netip.ParseAddr(h)
		if err != nil || a.Is4() != n.Links[0].Local.Addr().Is4() {
			return nil, fmt.Errorf("host %q: want an address of the family of the router's "+
				"internal address %s", h, n.Links[0].Local.Addr())
		}
		n.Hosts = append(n.Hosts, Host{Addr: a, MAC: placeholderMAC(0x200 + i)})
	}
	return n, nil
}

// readKey decodes a forwarding key, or derives one as the reference router does.
func readKey(key, dir string) (k [16]byte, err error) {
	if dir != "" {
		master, err := keyconf.LoadMaster(dir)
		if err != nil {
			return k, fmt.Errorf("read master keys from %s: %w", dir, err)
		}
		if len(master.Key0) == 0 {
			return k, fmt.Errorf("read master keys from %s: %s is empty", dir, keyconf.MasterKey0)
		}
		return [16]byte(control.DeriveHFMacKey(master.Key0)), nil
	}
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != len(k) {
		return k, errors.New("key: want 16 bytes in base64")
	}
	return [16]byte(raw), nil
}

func parseMAC(s string) (*[6]byte, error) {
	if s == "" {
		return nil, nil
	}
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("MAC address %q: want six bytes as in 02:00:00:00:00:01", s)
	}
	return (*[6]byte)(mac), nil
}

// write writes all packets, with timestamps a microsecond apart.
func (g *generator) write(w io.Writer) error {
	pcap := pcapgo.NewWriter(w)
	if err := pcap.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		return err
	}
	at := time.Unix(int64(g.net.Now), 0)
	for flow := range g.opts.Flows {
		for _, size := range g.opts.Sizes {
			f, err := g.packet(flow, size)
			if err != nil {
				return err
			}
			info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(f), Length: len(f)}
			if err := pcap.WritePacket(info, f); err != nil {
				return err
			}
			at = at.Add(time.Microsecond)
		}
	}
	return nil
}
