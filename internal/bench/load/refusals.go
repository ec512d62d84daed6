// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Refusals counts exactly the frames that devices refused to take from XDP programs. It slows down every XDP program on the
// machine that sends, so it should be open only during a measurement.
type Refusals struct {
	counts *ebpf.Map
	link   link.Link
	// places are the keys of the devices in counts.
	places []refusalPlace
}

// WatchRefusals counts the frames that devices refuse from now on.
func WatchRefusals(devices ...End) (*Refusals, error) {
	spec, err := loadRefusal()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the program that counts refused frames: %w", err)
	}
	defer coll.Close()
	w := &Refusals{counts: coll.DetachMap(refusalMapRefused)}
	for _, e := range devices {
		inode, err := e.Netns.Inode()
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		place := refusalPlace{Netns: inode, Ifindex: uint32(e.Index)}
		w.places = append(w.places, place)
		if err := w.counts.Put(place, uint64(0)); err != nil {
			return nil, errors.Join(fmt.Errorf("count refused frames of %s: %w", e.Name, err), w.Close())
		}
	}
	w.link, err = link.AttachRawTracepoint(link.RawTracepointOptions{
		Name: "xdp_devmap_xmit", Program: coll.Programs[refusalProgBenchRefused],
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the tracepoint xdp_devmap_xmit: %w", err), w.Close())
	}
	return w, nil
}

// Of reads the number of frames that a device has refused. device is its index in the arguments of WatchRefusals.
func (w *Refusals) Of(device int) (packets uint64, err error) {
	if err := w.counts.Lookup(w.places[device], &packets); err != nil {
		return 0, fmt.Errorf("read the count of refused frames: %w", err)
	}
	return packets, nil
}

// Close stops counting. Closing nil does nothing.
func (w *Refusals) Close() error {
	if w == nil {
		return nil
	}
	var err error
	if w.link != nil {
		err = w.link.Close()
	}
	return errors.Join(err, w.counts.Close())
}

// Inode is the inode number of the namespace, by which the kernel's tools show it.
func (s *Netns) Inode() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		return 0, fmt.Errorf("read the inode of a network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}
