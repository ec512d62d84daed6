// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Refusals counts the frames that devices did not take from XDP programs, exactly. It costs a moment for each
// batch that any XDP program on the machine sends, so it is there only while something is measured.
type Refusals struct {
	counts *ebpf.Map
	link   link.Link
	places []refusalPlace
}

// WatchRefusals counts for each device from now on.
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

// Of reads how many frames the device did not take. The number is the position in what WatchRefusals was given.
func (w *Refusals) Of(device int) (packets uint64, err error) {
	if err := w.counts.Lookup(w.places[device], &packets); err != nil {
		return 0, fmt.Errorf("read the count of refused frames: %w", err)
	}
	return packets, nil
}

// Close stops counting. Close of nothing does nothing.
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

// Inode is the number by which the kernel's tools show the namespace.
func (s *Netns) Inode() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		return 0, fmt.Errorf("tell the network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}
