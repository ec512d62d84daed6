// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/bench/load"
)

// kernelDrops are the counters of IP packets that the kernel drops when it forwards, by their file in /proc/net. Other
// counters, such as those of packets that the kernel sends itself, are not about the traffic.
var kernelDrops = map[string][]string{
	"snmp":    {"Ip:InHdrErrors", "Ip:InAddrErrors", "Ip:InDiscards", "Ip:OutDiscards", "Ip:OutNoRoutes"},
	"netstat": {"IpExt:InNoRoutes", "TcpExt:IPReversePathFilter"},
	"snmp6": {
		"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InNoRoutes", "Ip6InAddrErrors", "Ip6InTruncatedPkts", "Ip6InDiscards",
		"Ip6OutDiscards", "Ip6OutNoRoutes",
	},
}

// KernelLosses counts the IP packets that the kernel has dropped in a namespace, by reason.
func KernelLosses(s *load.Netns) (map[string]uint64, error) {
	lost := map[string]uint64{}
	err := s.Do(func() error {
		for file, names := range kernelDrops {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return fmt.Errorf("read the kernel's counters of IP packets: %w", err)
			}
			counters := ParseSNMP(string(text))
			for _, name := range names {
				lost["kernel_"+strings.ReplaceAll(name, ":", "")] += counters[name]
			}
		}
		return nil
	})
	return lost, err
}

// ParseSNMP reads the counters in a file such as /proc/net/snmp: pairs of lines "Ip: NAME ..." and "Ip: 1 ...", or lines
// "NAME 1". The keys are "Ip:NAME" and "NAME".
func ParseSNMP(text string) map[string]uint64 {
	counters := map[string]uint64{}
	var heads []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		group, grouped := fields[0], strings.HasSuffix(fields[0], ":")
		switch {
		case !grouped:
			if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
				counters[group] = n
			}
		case len(heads) == len(fields) && heads[0] == group:
			for i, field := range fields[1:] {
				if n, err := strconv.ParseUint(field, 10, 64); err == nil {
					counters[group+heads[i+1]] = n
				}
			}
			heads = nil
		default:
			heads = slices.Clone(fields)
		}
	}
	return counters
}
