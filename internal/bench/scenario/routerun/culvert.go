// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/datapath"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
)

// culvert is culvert's IP router. Its mirror is kept current between its rounds too.
type culvert struct {
	// noMirror turns the mirror off, so that culvert asks the kernel's FIB for every packet.
	noMirror bool
	// unfed stops updating the mirror once it is complete. Packets use it nevertheless.
	unfed bool
	// general leaves out the straight way, so that the general code handles all packets.
	general bool
	// joined is a further part of the data plane, nil if there is none.
	joined datapath.Part
	// workers are the CPUs that packets are spread over, nil for none.
	workers []int
	in      load.End
	inst    *datapath.Instance
	plane   *routeplane.Plane
	status  route.Status
	stop    context.CancelFunc
	done    chan error
	// sync is how long it took until the mirror was current. heap is the memory of this process that it takes, in bytes.
	sync time.Duration
	heap uint64
}

// syncLimit bounds the time until the mirror of a full table is current.
const syncLimit = 2 * time.Minute

// heldPlane is a data plane that always appears to be on its interfaces. Between its rounds it is not. Without heldPlane
// route.Run would then remove all next hops from the mirror each time.
type heldPlane struct {
	*routeplane.Plane
	interfaces []string
}

func (p heldPlane) Attached() []string { return p.interfaces }

// Prepare loads the data plane, waits until its mirror is current, and pauses it.
func (d *culvert) Prepare(ctx context.Context, p peer.Path) (err error) {
	d.in = p.In
	before := heapInUse()
	names := []string{p.In.Name, p.Out.Name}
	err = p.In.Netns.Do(func() error {
		o := datapath.Options{
			Name: "bench", Interfaces: names, Temporary: true,
			Parts:   []datapath.Part{routeplane.NewPart(routeplane.Options{NoMirror: d.noMirror, Trusting: d.unfed})},
			Workers: datapath.Workers{CPUs: d.workers},
			General: d.general,
		}
		if d.joined != nil {
			o.Parts = append(o.Parts, d.joined)
		}
		if d.inst, err = datapath.Attach(o); err == nil {
			d.plane, err = routeplane.Open(d.inst)
		}
		return err
	})
	if err != nil {
		return err
	}
	synced := make(chan struct{})
	d.done = make(chan error, 1)
	var feeding context.Context
	feeding, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	start := time.Now()
	go func() {
		d.done <- p.In.Netns.Do(func() error {
			// The mirror is updated on another CPU than that of the packets, if there is one.
			if err := load.Pin(load.AnotherCPU(load.LastCPU())); err != nil {
				return err
			}
			return route.Run(feeding, route.Options{
				Plane: heldPlane{d.plane, names}, Status: &d.status, OnSynced: func() { close(synced) },
			})
		})
	}()
	if err := d.await(ctx, synced, start); err != nil {
		return err
	}
	d.heap = heapInUse()
	d.heap -= min(before, d.heap)
	if d.noMirror || d.unfed {
		// The data plane keeps its state of devices and next hops, and needs nothing else.
		if err := d.unfeed(); err != nil {
			return err
		}
	}
	return d.inst.Pause()
}

// await waits until the kernel's tables have been read and the mirror is current.
func (d *culvert) await(ctx context.Context, synced <-chan struct{}, start time.Time) error {
	limit := time.NewTimer(syncLimit)
	defer limit.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	read := false
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", ctx.Err())
		case err := <-d.done:
			d.done <- err
			if err == nil {
				err = errors.New("it has ended")
			}
			return fmt.Errorf("keep culvert's routes current: %w", err)
		case <-limit.C:
			s := d.status.Load()
			return fmt.Errorf("wait for the mirror: it is not current after %s (IPv4: %s, IPv6: %s)", syncLimit, s.IPv4.Reason,
				s.IPv6.Reason)
		case <-synced:
			read, synced = true, nil
		case <-poll.C:
		}
		if read && (d.noMirror || d.current()) {
			d.sync = time.Since(start)
			return nil
		}
	}
}

// current tells whether packets use the mirror now.
func (d *culvert) current() bool {
	st, err := routeplane.ReadState(d.inst)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return false
	}
	return int64(min(st.Until4, st.Until6)) > now.Nano()
}

// heapInUse is the memory of the process's heap in bytes, after a garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (d *culvert) Attach(_ context.Context, p peer.Path) error { return p.In.Netns.Do(d.inst.Resume) }

// Frames returns the group's frames, which have the router's Ethernet address.
func (*culvert) Frames(_ peer.Path, common [][]byte) ([][]byte, error) { return common, nil }

// Losses counts the packets that culvert and the kernel behind it dropped.
func (d *culvert) Losses() (map[string]uint64, error) {
	lost, err := peer.CulvertLosses(d.inst, d.in, false)
	if err != nil {
		return nil, err
	}
	kernel, err := peer.KernelLosses(d.in.Netns)
	maps.Copy(lost, kernel)
	return lost, err
}

// Diverted counts the packets that were left to the kernel and, with a mirror, those that were looked up in the kernel's FIB.
func (d *culvert) Diverted() (map[string]uint64, error) {
	ports, err := d.inst.Ports()
	if err != nil {
		return nil, err
	}
	diverted := map[string]uint64{}
	for _, port := range ports {
		if port.Interface != d.in.Name {
			continue
		}
		for _, r := range port.Reasons {
			switch {
			case r.Verdict != string(datapath.VerdictFwd):
				diverted[leftToKernel+" ("+r.Name+")"] += r.Packets
			case !d.noMirror && r.Name == "route-fib":
				diverted["looked up in the kernel"] += r.Packets
			}
		}
	}
	return diverted, nil
}

// mirrored implements mirroring.
func (d *culvert) mirrored(r *report.Routes) {
	r.Sync, r.ProcessBytes = d.sync.Seconds(), d.heap
	if n, err := mapBytes(d.inst.Program()); err == nil {
		r.MapBytes = n
	}
}

// mapBytes is the memory of all maps of the IP router in bytes, as the kernel reports it.
func mapBytes(prog *ebpf.Program) (bytes uint64, err error) {
	info, err := prog.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the maps of %s: %w", prog, err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, fmt.Errorf("open map %d: %w", id, err)
		}
		about, err := m.Info()
		if err = errors.Join(err, m.Close()); err != nil {
			return 0, fmt.Errorf("ask for the size of map %d: %w", id, err)
		}
		if n, known := about.Memlock(); known && strings.HasPrefix(about.Name, "route_") {
			bytes += n
		}
	}
	return bytes, nil
}

func (d *culvert) Detach() error {
	if d.inst == nil {
		return nil
	}
	return d.inst.Pause()
}

// unfeed stops updating the mirror.
func (d *culvert) unfeed() error {
	if d.stop == nil {
		return nil
	}
	d.stop()
	d.stop = nil
	return <-d.done
}

// Release stops updating the mirror, and unloads the data plane.
func (d *culvert) Release() error {
	err := d.unfeed()
	if d.inst != nil {
		err = errors.Join(err, d.inst.Pause())
		if d.plane != nil {
			d.plane.Close()
		}
		d.inst.Close()
	}
	return err
}
