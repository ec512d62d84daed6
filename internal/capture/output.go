// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// errReader says that whoever has read what is written has gone. That is an end like any other.
var errReader = errors.New("the reader has gone")

// unlessGone returns no error for one that says that the reader has gone.
func unlessGone(err error) error {
	if errors.Is(err, errReader) {
		return nil
	}
	return err
}

// output is where the bytes of a sink go.
type output struct {
	to   io.Writer
	file *os.File // to, if it is a file, a pipe or a device
	mode fs.FileMode
	// taken counts bytes.
	taken atomic.Int64
}

func newOutput(to io.Writer) *output {
	o := &output{to: to}
	if f, ok := to.(*os.File); ok {
		if about, err := f.Stat(); err == nil {
			o.file, o.mode = f, about.Mode()
		}
	}
	return o
}

// waits tells whether a write may wait for a reader.
func (o *output) waits() bool { return o.file == nil || o.mode&(fs.ModeNamedPipe|fs.ModeSocket) != 0 }

// piece is how many bytes are given to a reader at a time: whoever wants to know whether it takes any looks at taken. It is a page, which
// is what a pipe has room for as a whole.
const piece = 4096

// put writes blocks, which end where ends say. It returns how many are written. What is written of the next one is cut off if that is
// possible.
func (o *output) put(blocks []byte, ends []int) (whole int, err error) {
	n, most := 0, len(blocks)
	if o.waits() {
		most = piece
	}
	for n < len(blocks) && err == nil {
		var m int
		m, err = o.to.Write(blocks[n:min(n+most, len(blocks))])
		n += m
		o.taken.Add(int64(m))
	}
	if err == nil {
		return len(ends), nil
	}
	last := 0
	for whole < len(ends) && ends[whole] <= n {
		last = ends[whole]
		whole++
	}
	if errors.Is(err, syscall.EPIPE) {
		return whole, errReader
	}
	o.cut(int64(n - last))
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err // whoever says this has a better name for it
	}
	return whole, err
}

// cut removes the last bytes of a file.
func (o *output) cut(bytes int64) {
	if o.file == nil || !o.mode.IsRegular() || bytes == 0 {
		return
	}
	at, err := o.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return
	}
	if about, err := o.file.Stat(); err != nil || about.Size() != at {
		return // somebody else writes to it
	}
	if o.file.Truncate(at-bytes) == nil {
		_, _ = o.file.Seek(at-bytes, io.SeekStart)
	}
}

// gone tells whether nobody reads a pipe or a socket any more.
func (o *output) gone() bool {
	if o.file == nil || !o.waits() {
		return false
	}
	raw, err := o.file.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}} // errors are told without being asked for
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return gone
}
