// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"errors"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/edit"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/show/usage"
)

func newGenCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gen",
		Short: "make packets: into a pcap file, or out of an interface",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usage.Error(errors.New("name what to generate (see 'culvert gen --help')"))
		},
	}
	cmd.AddCommand(newGenScionCmd(), newGenBlastCmd())
	return cmd
}

func newGenScionCmd() *cobra.Command {
	var o scionpkt.GenerateOptions
	var key string
	cmd := &cobra.Command{
		Use:   "scion --topology FILE --router ID {--key FILE | --keys DIR} -w FILE.pcap",
		Short: "write SCION packets that a border router forwards",
		Long: `Write a pcap file of Ethernet frames with SCION packets as they arrive at a border router. Their
hop fields have MACs that this router accepts, and are valid for a day.

The packets take every path that the topology has through the router, by turns, unless --direction,
--ingress or --egress restricts them. The directions are external->external, external->sibling,
sibling->external, inside->external and external->host. --ingress also decides by which link, and
so at which device, the packets arrive: a file for one device needs one ingress.

Each flow has its own flow label, source host and source port, and one packet of each size. A
topology has no MAC addresses: give those of the device under test and of its neighbor.`,
		Example: `  # A million flows of 138 bytes that enter at interface 1, for a topology and the AS's master keys
  culvert gen scion --topology topology.json --router br1-ff00_0_1-2 --keys keys \
      --flows 1000000 --hop-fields 3 --size 138 --ingress 1 --dst-mac 02:00:00:00:00:02 -w in.pcap

  # Three sizes of packets to a host of the AS, with a forwarding key as for 'culvert key add'
  echo AAECAwQFBgcICQoLDA0ODw== | culvert gen scion --topology topology.json --router br-1 --key - \
      --direction 'external->host' --host 10.0.0.10 --size 138,512,1400 -w host.pcap`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (key == "") == (o.Keys == "") {
				return usage.Error(errors.New("give either --key or --keys"))
			}
			for flag, value := range map[string]string{
				"topology": o.Topology, "router": o.Router, "write": o.Output,
			} {
				if value == "" {
					return usage.Error(errors.New("--" + flag + " is missing (see 'culvert gen scion --help')"))
				}
			}
			if key != "" {
				k, err := edit.ReadKey(key, cmd.InOrStdin())
				if err != nil {
					return err
				}
				o.Key = base64.StdEncoding.EncodeToString(k[:])
			}
			return scionpkt.GenerateFile(o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Topology, "topology", "", "the AS's topology.json is `FILE`")
	f.StringVar(&o.Router, "router", "", "the border router is `ID` in the topology")
	f.StringVar(&key, "key", "", "read the forwarding key, 16 bytes in base64, from `FILE`, - for standard input")
	f.StringVar(&o.Keys, "keys", "", "take the AS's master0.key and master1.key from the directory `DIR`")
	f.IntVar(&o.Flows, "flows", 1000, "make `N` flows")
	f.IntVar(&o.HopFields, "hop-fields", 4, "paths have `N` hop fields")
	f.IntSliceVar(&o.Sizes, "size", []int{256}, "Ethernet frames have the lengths `BYTES,...`")
	f.StringVar(&o.Family, "family", "4", "`FAMILY` of the SCION hosts: 4, 6 or both")
	f.StringSliceVar(&o.Directions, "direction", nil, "make packets of the directions `DIRECTION,...` (default all)")
	f.IntVar(&o.Ingress, "ingress", -1, "the packets enter at SCION interface `ID`, 0 for inside the AS")
	f.IntVar(&o.Egress, "egress", -1, "the packets leave at SCION interface `ID`, 0 for inside the AS")
	f.StringSliceVar(&o.Hosts, "host", nil, "the AS has the hosts `ADDRESS,...` (default the address after the router's)")
	f.StringVar(&o.SrcMAC, "src-mac", "", "source `MAC` address (default made up)")
	f.StringVar(&o.DstMAC, "dst-mac", "", "destination `MAC` address (default made up)")
	f.StringVarP(&o.Output, "write", "w", "", "write the pcap file `FILE`, - for standard output")
	cli.CompleteFileFlag(cmd, "topology", "json")
	cli.CompleteFileFlag(cmd, "write", "pcap")
	cli.Must(cmd.MarkFlagDirname("keys"))
	cli.CompleteFlag(cmd, "direction", directions)
	cli.CompleteFlag(cmd, "family", cli.Fixed("4", "6", "both"))
	return cmd
}

func directions([]string) []string {
	var names []string
	for d := range scionpkt.NumDirections {
		names = append(names, d.String())
	}
	return names
}
