// SPDX-License-Identifier: Apache-2.0

package doctor

import "culvert/internal/host/netdev"

// offload is the state of one offload of a device, as ethtool -k shows it.
type offload struct {
	on bool
	// fixed tells whether the driver does not let it be changed.
	fixed bool
}

// offloads has the offloads that are on, by the kernel's names, such as "tx-checksum-ip-generic".
type offloads map[string]offload

// txChecksum tells whether the stack hands packets with unfinished checksums to the device.
func (o offloads) txChecksum() bool {
	return o["tx-checksum-ip-generic"].on || o["tx-checksum-ipv4"].on || o["tx-checksum-ipv6"].on
}

// xdpSupport is what the driver can do with XDP in its present state. Kernels since 6.3 report it.
type xdpSupport struct {
	known bool
	// acts is a mask of netdev.Act*.
	acts uint64
}

func (x xdpSupport) can(acts uint64) bool { return x.acts&acts == acts }

// readOffloads reads the features of a device in the calling thread's network namespace.
func readOffloads(device string) (offloads, error) {
	features, err := netdev.ReadFeatures(device)
	if err != nil {
		return nil, err
	}
	all := offloads{}
	for name, changeable := range features {
		all[name] = offload{on: true, fixed: !changeable}
	}
	return all, nil
}

// readXDPSupport reads what the driver can do with XDP. On kernels before 6.3 that is not known.
func readXDPSupport(index int) xdpSupport {
	c, err := netdev.Open(netdev.XDPFamily)
	if err != nil {
		return xdpSupport{}
	}
	defer c.Close()
	acts, known := c.XDPActs(index)
	return xdpSupport{known: known, acts: acts}
}
