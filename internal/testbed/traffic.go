// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Patience bounds every wait. Tests that pass wait much shorter.
const Patience = 60 * time.Second

// Sink counts and drops the packets that come in by an interface.
type Sink struct{ count *ebpf.Map }

// AddSink attaches a Sink to a device.
func AddSink(t testing.TB, name string) *Sink {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	attachProgram(t, name, asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1 /* XDP_DROP */).WithSymbol("out"),
		asm.Return(),
	})
	return &Sink{m}
}

// Packets returns how many packets have arrived.
func (s *Sink) Packets() (n uint64, err error) {
	err = s.count.Lookup(uint32(0), &n)
	return n, err
}

// Await waits until at least want packets have arrived.
func (s *Sink) Await(want uint64) error {
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		n, err := s.Packets()
		if err != nil || n >= want {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d packets of %d have arrived", n, want)
		}
	}
}

// Sender sends frames over and over. It sends Window frames only after the previous ones have arrived, so that no queue on the
// way overflows on a slow machine.
type Sender struct {
	sent atomic.Uint64
	stop atomic.Bool
	done chan error
}

// Window is how many frames a Sender sends at a time.
const Window = 64

// StartSender sends the frames in turn by device out until Stop. They must reach sink s.
func StartSender(t testing.TB, out *net.Interface, s *Sink, frames ...[]byte) *Sender {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrLinklayer{Ifindex: out.Index}
	snd := &Sender{done: make(chan error, 1)}
	go func() {
		defer unix.Close(fd)
		snd.done <- func() error {
			for !snd.stop.Load() {
				if n := snd.sent.Load(); n%Window == 0 {
					if err := s.Await(n); err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // leaves the CPU to others
				}
				if err := unix.Sendto(fd, frames[snd.sent.Load()%uint64(len(frames))], 0, to); err != nil {
					return err
				}
				snd.sent.Add(1)
			}
			return nil
		}()
	}()
	return snd
}

// Stop stops sending. It returns the error if one has ended sending before.
func (s *Sender) Stop() error {
	s.stop.Store(true)
	return <-s.done
}

// Sent returns how many frames were sent.
func (s *Sender) Sent() uint64 { return s.sent.Load() }
