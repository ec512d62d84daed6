// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/host/cpus"
)

const (
	// MaxWorkers is the largest number of worker CPUs (MAX_WORKERS of bpf/core/worker.h).
	MaxWorkers = 64
	// MaxQueue is the longest queue that the kernel gives a worker, in packets (kernel/bpf/cpumap.c).
	MaxQueue = 16384
	// DefaultQueue is the default length of a worker's queue, in packets: about 2 ms of traffic for a worker that handles a
	// million packets a second.
	DefaultQueue = 2048
)

// Workers are the CPUs that packets are spread over, each flow to one of them.
type Workers struct {
	// CPUs are the numbers of online CPUs, each once. If it is empty, packets are processed on the CPU that receives them.
	CPUs []int
	// Queue is the number of packets that may wait for each worker. 0 stands for DefaultQueue.
	Queue int
}

// normal returns w sorted and with defaults filled in. It returns an error for what the kernel would refuse, and for CPUs
// that are not online, on which packets would wait for ever.
func (w Workers) normal() (Workers, error) {
	if len(w.CPUs) == 0 {
		return Workers{}, nil
	}
	if w.Queue == 0 {
		w.Queue = DefaultQueue
	}
	if w.Queue < 1 || w.Queue > MaxQueue {
		return w, fmt.Errorf("queue of %d packets for each worker: use 1 to %d", w.Queue, MaxQueue)
	}
	w.CPUs = slices.Sorted(slices.Values(w.CPUs))
	if err := cpus.Check(w.CPUs, MaxWorkers); err != nil {
		return w, fmt.Errorf("workers: %w", err)
	}
	return w, nil
}

// newFlowKey returns a random key for the hash of flows, so that senders cannot aim flows at one worker.
func newFlowKey() (key []uint32) {
	var b [8 * flowWords]byte
	_, _ = rand.Read(b[:]) // never fails
	for n := range 2 * flowWords {
		key = append(key, binary.NativeEndian.Uint32(b[4*n:]))
	}
	return key
}

// flowWords is FLOW_WORDS of bpf/core/flow.h.
const flowWords = 7

// setWorkers sets sizes and constants for the workers of m. Without workers it deletes program worker.
func setWorkers(spec *ebpf.CollectionSpec, m meta, roundRobin bool) error {
	w := m.Workers
	if len(w.CPUs) == 0 {
		delete(spec.Programs, bpfobj.PipelineProgWorker)
		return nil
	}
	spec.Maps[bpfobj.PipelineMapWorkerCpus].MaxEntries = uint32(slices.Max(w.CPUs) + 1)
	var list [MaxWorkers]uint32
	for n, cpu := range w.CPUs {
		list[n] = uint32(cpu)
	}
	for name, value := range map[string]any{
		bpfobj.PipelineVarWorkerTurns: roundRobin,
		bpfobj.PipelineVarWorkerCount: uint32(len(w.CPUs)),
		bpfobj.PipelineVarWorkerCpu:   list,
		bpfobj.PipelineVarFlowKey:     [2 * flowWords]uint32(m.FlowKey),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// cpumapEntry is struct bpf_cpumap_val of linux/bpf.h.
type cpumapEntry struct {
	Queue uint32
	FD    int32
}

// startWorkers makes the kernel's queues and threads of the workers. They live as long as the map: when the last program that
// enqueues packets is gone, the threads empty their queues and end.
func (i *Instance) startWorkers(worker *ebpf.Program) error {
	for _, cpu := range i.meta.Workers.CPUs {
		e := cpumapEntry{Queue: uint32(i.meta.Workers.Queue), FD: int32(worker.FD())}
		if err := i.maps[bpfobj.PipelineMapWorkerCpus].Put(uint32(cpu), e); err != nil {
			return fmt.Errorf("starting the worker on CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// Workers returns the CPUs that packets are spread over.
func (i *Instance) Workers() Workers { return i.meta.Workers }

// Enqueued returns how many packets each CPU has given to workers since the data plane was attached first, those that a full queue has
// refused included. The index is the CPU. It returns nil without workers.
func (i *Instance) Enqueued() ([]uint64, error) {
	if len(i.meta.Workers.CPUs) == 0 {
		return nil, nil
	}
	var values []bpfobj.PipelineEnqueued
	if err := i.maps[bpfobj.PipelineMapCpumapEnqueued].Lookup(uint32(0), &values); err != nil {
		return nil, fmt.Errorf("reading what %s has given to workers: %w", i.Name(), err)
	}
	packets := make([]uint64, len(values))
	for cpu, v := range values {
		packets[cpu] = v.Packets
	}
	return packets, nil
}

// workerMap returns the ID of the map with the queues of the workers, 0 if there are no workers.
func (i *Instance) workerMap() (uint32, error) {
	if i == nil || len(i.meta.Workers.CPUs) == 0 {
		return 0, nil
	}
	info, err := i.maps[bpfobj.PipelineMapWorkerCpus].Info()
	if err != nil {
		return 0, fmt.Errorf("looking at the workers of %s: %w", i.Name(), err)
	}
	id, ok := info.ID()
	if !ok {
		return 0, fmt.Errorf("looking at the workers of %s: the kernel gives no ID: see 'culvert doctor'", i.Name())
	}
	return uint32(id), nil
}
