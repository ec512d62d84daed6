// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
)

// lockPath returns the file that the process which captures holds a lock on. The kernel drops the lock when the process ends.
func lockPath(inst *datapath.Instance) string {
	return filepath.Join(trust.RunDir, fmt.Sprintf("capture-%d-%s.lock", inst.NetNS(), url.PathEscape(inst.Name())))
}

// owned tells whether a process captures.
func owned(inst *datapath.Instance) bool {
	lock, err := trust.TakeLock(lockPath(inst))
	if err != nil {
		return errors.Is(err, trust.ErrLocked)
	}
	_ = lock.Release()
	return false
}

// owned takes the lock for a moment. takeLock tries several times, so that this does not make a Start fail.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

func takeLock(path string) (lock *trust.Lock, err error) {
	for range lockTries {
		if lock, err = trust.TakeLock(path); !errors.Is(err, trust.ErrLocked) {
			return lock, err
		}
		time.Sleep(lockPause)
	}
	return nil, err
}

// ErrBusy says that somebody else captures on the data plane.
var ErrBusy = errors.New("somebody else captures on the data plane")

// busyError is ErrBusy, and says who captures.
type busyError struct{ text string }

func (e *busyError) Error() string { return e.text }

// Is tells that e is ErrBusy.
func (*busyError) Is(target error) bool { return target == ErrBusy }

// Session is a capture that runs. Close ends it.
type Session struct {
	inst   *datapath.Instance
	others []datapath.Fronted
	lock   *trust.Lock
	reader *perf.Reader
	id     uint64 // of the data plane
	maps   map[string]*ebpf.Map
}

// Start begins a capture on a data plane. others are the parts that may have programs in front of it. Only one process at a time
// captures on a data plane. bufferSize is the size of the buffer for each CPU, in bytes. An error leaves the programs as they were.
// The calling thread has to be in the network namespace of the data plane.
func Start(inst *datapath.Instance, o Options, others []datapath.Fronted, bufferSize int) (_ *Session, err error) {
	if len(o.Interfaces) > MaxInterfaces {
		return nil, fmt.Errorf("%d interfaces: a capture can be limited to %d", len(o.Interfaces), MaxInterfaces)
	}
	path := lockPath(inst)
	lock, err := takeLock(path)
	if errors.Is(err, trust.ErrLocked) {
		return nil, &busyError{fmt.Sprintf("%s captures on data plane %s already, for itself or for a client of its socket: end that capture first", trust.HolderName(path), inst.Name())}
	}
	if err != nil {
		return nil, err
	}
	s := &Session{inst: inst, others: others, lock: lock, id: inst.ID()}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.maps, err = newMaps(); err != nil {
		return nil, err
	}
	if s.reader, err = perf.NewReader(s.maps[bpfobj.CaptureMapCaptureEvents], bufferSize); err != nil {
		return nil, fmt.Errorf("making the buffers of the capture: %w", bpfobj.LoadError(err))
	}
	err = edit(inst, func(now *datapath.Instance) error {
		st := &state{o}
		change := func(old *datapath.Front, on datapath.Behind) (*datapath.Front, func(bool), error) {
			next, err := st.front(on.Inst, s.maps)
			return next, nil, err
		}
		err := now.EditFront(Name, change)
		if err == nil {
			err = rebuild(now, others)
		}
		if err != nil {
			err = errors.Join(err, end(now, others))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// edit calls change with the edit lock held. A temporary instance has none to hold over several edits, and needs none, since no other
// process can change it.
func edit(inst *datapath.Instance, change func(now *datapath.Instance) error) error {
	if inst.Temporary() {
		return change(inst)
	}
	return inst.Edit(change)
}

// rebuild loads the programs in front anew: with a capture if there is one, otherwise without.
func rebuild(inst *datapath.Instance, others []datapath.Fronted) error {
	for _, p := range others {
		if err := inst.RebuildFront(p); err != nil {
			return err
		}
	}
	return nil
}

// end brings the programs without a capture back.
func end(inst *datapath.Instance, others []datapath.Fronted) error {
	err := inst.EditFront(Name, func(old *datapath.Front, _ datapath.Behind) (*datapath.Front, func(bool), error) {
		if old.State == nil {
			return old, nil, nil
		}
		return &datapath.Front{}, nil, nil
	})
	return errors.Join(err, rebuild(inst, others), plainWorkers(inst))
}

// plainWorkers gives the workers the program without a capture.
func plainWorkers(inst *datapath.Instance) error {
	if len(inst.Workers().CPUs) == 0 {
		return nil
	}
	spec, err := inst.LoadPipeline()
	if err != nil {
		return err
	}
	coll, err := inst.Variant(spec, nil)
	if err != nil {
		return err
	}
	defer coll.Close()
	return inst.SetWorkers(coll.Programs[bpfobj.PipelineProgWorker])
}

// Sweep ends a capture whose process is gone, and tells whether there was one.
func Sweep(inst *datapath.Instance, others []datapath.Fronted) (bool, error) {
	f, done, err := inst.Front(Name)
	if err != nil {
		return false, err
	}
	on := f.State != nil
	done()
	if !on || owned(inst) {
		return false, nil
	}
	return true, edit(inst, func(now *datapath.Instance) error {
		if owned(now) {
			return nil
		}
		return end(now, others)
	})
}

// Lost returns how many records had no room in a buffer.
func (s *Session) Lost() (n uint64, err error) {
	var all []bpfobj.CaptureCapturePacket
	if err := s.maps[bpfobj.CaptureMapCapturePackets].Lookup(uint32(0), &all); err != nil {
		return 0, fmt.Errorf("reading the losses of the capture: %w", err)
	}
	for _, c := range all {
		n += c.Lost
	}
	return n, nil
}

// Read waits for a record and returns it as the kernel has written it: struct capture_record, and the bytes of the frame behind
// it, with up to 7 bytes of padding. The error is os.ErrDeadlineExceeded if there is none until the deadline of Reader, and
// os.ErrClosed after Close. Read reuses the bytes of r.
func (s *Session) Read(r *perf.Record) error {
	for {
		if err := s.reader.ReadInto(r); err != nil {
			if errors.Is(err, perf.ErrClosed) {
				err = os.ErrClosed
			}
			return err
		}
		if r.LostSamples == 0 {
			return nil
		}
	}
}

// Reader returns the reader of the records, for its deadline.
func (s *Session) Reader() *perf.Reader { return s.reader }

// Gone tells whether the data plane was removed since the start.
func (s *Session) Gone() bool { return s.id != 0 && s.inst.ID() != s.id }

// Close ends the capture.
func (s *Session) Close() error {
	err := edit(s.inst, func(now *datapath.Instance) error { return end(now, s.others) })
	if errors.Is(err, pins.ErrGone) || errors.Is(err, os.ErrNotExist) {
		err = nil // the data plane is gone, and the programs with it
	}
	s.release()
	return err
}

func (s *Session) release() {
	if s.reader != nil {
		s.reader.Close()
	}
	closeMaps(s.maps)
	_ = s.lock.Release()
}
