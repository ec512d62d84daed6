// SPDX-License-Identifier: Apache-2.0

// Package cards gives guests emulated network cards, in pairs that the emulator joins back to back.
package cards

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Model is a kind of card, by the name of its driver in Linux.
type Model string

// The models that QEMU emulates and that Linux has a driver with XDP for, but E1000e, whose driver has none.
const (
	Virtio  Model = "virtio_net"
	VMXNet3 Model = "vmxnet3"
	E1000e  Model = "e1000e"
)

// devices has the name of each model in QEMU.
var devices = map[Model]string{Virtio: "virtio-net-pci", VMXNet3: "vmxnet3", E1000e: "e1000e"}

// Modules are the kernel modules of all models, in the order in which they can be loaded.
var Modules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "failover", "net_failover", "virtio_net",
	"vmxnet3", "e1000e", "tun",
}

// maxQueues bounds Wire.Queues. A virtio_net card with more has more interrupts than a guest's interrupt controller.
const maxQueues = 16

// Wire is two cards of a guest that are joined: what one sends, the other receives. The near card is of the given model. The far
// one is of the same kind on all wires: a virtio_net card that neither merges nor splits packets.
type Wire struct {
	Near Model
	// Queues is the number of queue pairs of the near card. More than one needs root and virtio_net.
	Queues int
	// Options are more options of the near card, as QEMU has them, separated by commas.
	Options string
}

// Parse reads a wire in the form MODEL[*QUEUES][,OPTION=VALUE...], as in "virtio_net*4,mrg_rxbuf=off".
func Parse(text string) (w Wire, err error) {
	near, options, _ := strings.Cut(text, ",")
	name, count, several := strings.Cut(near, "*")
	w = Wire{Near: Model(name), Queues: 1, Options: options}
	if _, ok := devices[w.Near]; !ok {
		return w, fmt.Errorf("card %q: there are %s, %s and %s", name, Virtio, VMXNet3, E1000e)
	}
	if several {
		w.Queues, err = strconv.Atoi(count)
		if err != nil || w.Queues < 1 || w.Queues > maxQueues {
			return w, fmt.Errorf("card %q: a number of queues from 1 to %d has to follow the *", text, maxQueues)
		}
	}
	if w.Queues > 1 && w.Near != Virtio {
		return w, fmt.Errorf("card %q: the emulator gives several queues to %s alone", text, Virtio)
	}
	return w, nil
}

// String returns what Parse reads.
func (w Wire) String() string {
	s := string(w.Near)
	if w.Queues > 1 {
		s += "*" + strconv.Itoa(w.Queues)
	}
	if w.Options != "" {
		s += "," + w.Options
	}
	return s
}

// Near returns the link address of the near card of a wire, by the wire's number in a guest.
func Near(wire int) net.HardwareAddr { return address(wire, 1) }

// Far returns that of the far card.
func Far(wire int) net.HardwareAddr { return address(wire, 2) }

func address(wire int, end byte) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0, 0xc0, byte(wire), end}
}

// farOptions make a card that takes frames as they are. Checksums it may leave to the receiver, where the back end of the wire has a way to
// say so: taps do.
const farOptions = ",guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"

// Arguments are QEMU's arguments for the wires. A wire of one queue is a hub of the emulator. One with several is made of taps, which
// have to be in the emulator's network namespace (Space).
func Arguments(wires []Wire) (args []string) {
	for n, w := range wires {
		near, far := fmt.Sprintf("hubport,id=n%d,hubid=%d", n, n), fmt.Sprintf("hubport,id=f%d,hubid=%d", n, n)
		options := ""
		if w.Queues > 1 {
			near = fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no,queues=%d", n, tapName("n", n), w.Queues)
			far = fmt.Sprintf("tap,id=f%d,ifname=%s,script=no,downscript=no", n, tapName("f", n))
			// An interrupt for each queue, and those for changes of the link and of the configuration.
			options = fmt.Sprintf(",mq=on,vectors=%d", 2*w.Queues+2)
		}
		if w.Options != "" {
			options += "," + w.Options
		}
		args = append(args,
			"-netdev", near, "-device", fmt.Sprintf("%s,netdev=n%d,mac=%s%s", devices[w.Near], n, Near(n), options),
			"-netdev", far, "-device", fmt.Sprintf("%s,netdev=f%d,mac=%s%s", devices[Virtio], n, Far(n), farOptions))
	}
	return args
}

func tapName(end string, wire int) string { return fmt.Sprintf("%s%d", end, wire) }

// NeedSpace tells whether wires need a network namespace of the emulator's own, and so root.
func NeedSpace(wires []Wire) bool {
	for _, w := range wires {
		if w.Queues > 1 {
			return true
		}
	}
	return false
}
