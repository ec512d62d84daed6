// SPDX-License-Identifier: Apache-2.0

// Package filesource takes the backends of a VIP from a file.
package filesource

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"culvert/internal/lb"
	"culvert/internal/lb/source"
)

// Source is a file with a backend on each line.
type Source struct {
	// Path is that of the file.
	Path string
}

const (
	// lookPeriod is the time between two looks at whether the file has changed.
	lookPeriod = 250 * time.Millisecond
	// young is how long a file may change without its time of change telling: until then it is read again.
	young = time.Second
	// largest is the size of the largest file that is read, in bytes.
	largest = 8 << 20
	// repeat is the time after which an answer is told again although nothing has changed.
	repeat = time.Minute
)

// stamp identifies the content of a file.
type stamp struct {
	info     fs.FileInfo
	err      string
	modified time.Time
	size     int64
}

func stampOf(path string) (s stamp) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{err: err.Error()}
	}
	return stamp{info: info, modified: info.ModTime(), size: info.Size()}
}

func (s stamp) same(o stamp) bool {
	return s.err == o.err && s.size == o.size && s.modified.Equal(o.modified) && (s.info == nil || os.SameFile(s.info, o.info))
}

// Watch implements source.Source. It reads the file when its stamp changes: so it sees also a file that another one was renamed to, and
// one behind a symbolic link.
func (s Source) Watch(ctx context.Context, tell source.Tell) {
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	var (
		read stamp
		at   time.Time // when it was read last
	)
	for {
		now := stampOf(s.Path)
		mayDiffer := !at.IsZero() && now.err == "" && at.Sub(now.modified).Abs() < young
		if at.IsZero() || !now.same(read) || mayDiffer || time.Since(at) > repeat {
			read, at = now, time.Now()
			tell(Read(s.Path))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Read returns the backends in a file.
func Read(path string) ([]lb.Offer, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a named pipe would be waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, largest+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > largest:
		return nil, fmt.Errorf("%s: %w: it has more than %d MiB", path, source.ErrTooMany, largest>>20)
	case !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0:
		return nil, fmt.Errorf("%s is no list of backends: it is no text", path)
	}
	return parse(path, text)
}

// parse reads a list: an entry on each line; # begins a comment.
func parse(path string, text []byte) ([]lb.Offer, error) {
	var list source.List
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<10)
	n := 0
	for lines.Scan() {
		n++
		entry, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(entry) == "" {
			continue
		}
		if err := list.Parse(fmt.Sprintf("line %d", n), entry); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = errors.New("it is too long")
		}
		return nil, fmt.Errorf("%s: line %d: %w", path, n+1, err)
	}
	return list.All(), nil
}
