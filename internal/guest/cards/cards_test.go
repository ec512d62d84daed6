// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Wire{
		"virtio_net":              {Near: Virtio, Queues: 1},
		"virtio_net*4,mtu=9000":   {Near: Virtio, Queues: 4, Options: "mtu=9000"},
		"vmxnet3":                 {Near: VMXNet3, Queues: 1},
		"e1000e,subsys_ven=1,x=y": {Near: E1000e, Queues: 1, Options: "subsys_ven=1,x=y"},
	} {
		w, err := Parse(text)
		if err != nil || w != want || w.String() != text {
			t.Errorf("%s gives %+v (%s), %v", text, w, w, err)
		}
	}
	for _, text := range []string{"", "ixgbe", "virtio_net*", "virtio_net*0", "virtio_net*17", "virtio_net*-1", "vmxnet3*2"} {
		if w, err := Parse(text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gives %+v, %v", text, w, err)
		}
	}
}

// Wires of one queue need no taps. Each card has an address of its own.
func TestArguments(t *testing.T) {
	one, four := Wire{Near: VMXNet3, Queues: 1}, Wire{Near: Virtio, Queues: 4, Options: "mrg_rxbuf=off"}
	if NeedSpace([]Wire{one}) || !NeedSpace([]Wire{one, four}) {
		t.Error("only wires with several queues need a network namespace")
	}
	args := strings.Join(Arguments([]Wire{one, four}), " ")
	for _, want := range []string{
		"hubport,id=n0,hubid=0", "vmxnet3,netdev=n0,mac=52:54:00:c0:00:01", "hubport,id=f0,hubid=0", "netdev=f0,mac=52:54:00:c0:00:02",
		"tap,id=n1,ifname=n1,script=no,downscript=no,queues=4", "netdev=n1,mac=52:54:00:c0:01:01,mq=on,vectors=10,mrg_rxbuf=off",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("%s is not in %s", want, args)
		}
	}
	if n := len(slices.Compact(slices.Sorted(strings.FieldsSeq(args)))); n != 2+8 {
		t.Errorf("%d different words in %s", n, args)
	}
}
