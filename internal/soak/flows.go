// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

const (
	// frameLen is the length of all counted frames in bytes.
	frameLen = 400
	// mark is what counted frames have before their number, at markAt.
	mark   = 0x50414b21
	markAt = frameLen - 12
	// tagAt is where the number is, with its complement behind it, so that checksums are right for each number.
	tagAt = frameLen - 8
	// numbers is how many numbers the frames of a kind have. They take turns.
	numbers = 1 << 16
	// tick is the time between two bursts.
	tick = 10 * time.Millisecond
	// port is the destination port of routed traffic. Those after it are of the filter's kinds.
	port = 7700
	// vipPort is the port of the VIPs for UDP.
	vipPort = 5353
)

// flow is one kind of counted traffic.
type flow struct {
	name   string
	number int // of the kind: its frames have the numbers from number*numbers on
	rate   int // packets a second
	// exact is the name of the counter of a rule that has to count all that are dropped.
	exact string
	none  bool // may arrive
	sent  atomic.Uint64

	mu     sync.Mutex
	frames [][]byte
	next   int
}

// tagged writes the mark into a frame. SCION's own checksum, which routers do not look at, is wrong then.
func tagged(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame[markAt:], mark)
	binary.BigEndian.PutUint32(frame[tagAt:], 0)
	binary.BigEndian.PutUint32(frame[tagAt+4:], ^uint32(0))
	scionpkt.FixOuter(frame)
	return frame
}

// replace has the flow send other frames from now on. No frame of before is sent after it has returned.
func (f *flow) replace(frames [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, frame := range frames {
		tagged(frame)
	}
	f.frames, f.next = frames, 0
}

// send sends the next frame. A frame that the queue of the device has no room for is sent again, so that each number that counts
// as sent has come to the far end.
func (f *flow) send(fd int, refused *atomic.Uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.frames) == 0 {
		return nil
	}
	frame := f.frames[f.next%len(f.frames)]
	f.next++
	n := uint32(f.number*numbers) + uint32(f.sent.Load()%numbers)
	binary.BigEndian.PutUint32(frame[tagAt:], n)
	binary.BigEndian.PutUint32(frame[tagAt+4:], ^n)
	for {
		_, err := unix.Write(fd, frame)
		switch {
		case err == nil:
			f.sent.Add(1)
			return nil
		case errors.Is(err, unix.ENOBUFS):
			refused.Add(1)
			time.Sleep(100 * time.Microsecond)
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// sender sends flows from one end of a wire.
type sender struct {
	from  load.End
	flows []*flow
	// refused counts how often the queue of the device had no room.
	refused atomic.Uint64
	// late counts ticks that were left out, because the machine was busy.
	late atomic.Uint64
}

// socket returns a socket that sends frames from an end of a wire.
func socket(from load.End) (fd int, err error) {
	err = from.Netns.Do(func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: from.Index})
	})
	if err != nil {
		return -1, fmt.Errorf("open a socket on %s: %w", from.Name, err)
	}
	return fd, nil
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := socket(s.from)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	owed := make([]int, len(s.flows)) // in packets times ticks a second
	const perSecond = int(time.Second / tick)
	for next := time.Now(); ctx.Err() == nil; next = next.Add(tick) {
		time.Sleep(time.Until(next))
		if behind := time.Since(next); behind > 10*tick { // what was missed is not made up for
			s.late.Add(uint64(behind / tick))
			next = time.Now()
		}
		for n, f := range s.flows {
			for owed[n] += f.rate; owed[n] >= perSecond; owed[n] -= perSecond {
				if err := f.send(fd, &s.refused); err != nil {
					return fmt.Errorf("send %s from %s: %w", f.name, s.from.Name, err)
				}
			}
		}
	}
	return nil
}
