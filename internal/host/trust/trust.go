// SPDX-License-Identifier: Apache-2.0

// Package trust checks that only root can change a directory or read a secret, and keeps locks where only root can make
// them.
package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Mode bits with which others than the owner may change a directory, or use a secret.
const (
	writeByOthers = 0o022
	anyByOthers   = 0o077
)

// Error says what others than root can change or read, and which command mends it.
type Error struct{ Finding, Command string }

func (e *Error) Error() string { return e.Finding + ": " + e.Command }

// Dir returns an error unless the directory belongs to root (or to this process's user) and no one else may write to it.
// A symbolic link is an error, because whoever made it decides where it leads. The error matches fs.ErrNotExist if the
// directory does not exist, and fs.ErrPermission if this process may not look at it.
func Dir(path string) error { return DirAs(path, path) }

// DirAs is Dir for a directory that errors call name instead of path.
func DirAs(path, name string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("looking at %s: %w", name, err)
	}
	if !info.IsDir() {
		return &Error{name + " is no directory", "rm " + name}
	}
	if err := owned(info, name); err != nil {
		return err
	}
	if info.Mode().Perm()&writeByOthers != 0 {
		return &Error{fmt.Sprintf("others than root may write to %s (mode %04o)", name, mode(info)), "chmod go-w " + name}
	}
	return nil
}

// Secret returns the content of a file, at most 64 KiB, or an error unless only root (or this process's user) may read it, and
// only they may put another file in its place (Way).
func Secret(path string) ([]byte, error) {
	if err := Way(path); err != nil {
		return nil, err
	}
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, asRoot(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := secret(info, path); err != nil {
		return nil, err
	}
	const most = 64 << 10
	// Read the file that was checked. Another one may have its name by now.
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if len(b) > most {
		return nil, fmt.Errorf("%s has more than %d bytes: that is no secret", path, most)
	}
	return b, nil
}

// asRoot adds to an error of missing permission what to do.
func asRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run as root", err)
	}
	return err
}

// SecretFile returns the error with which Secret would refuse the file.
func SecretFile(path string) error {
	if err := Way(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return secret(info, path)
}

func secret(info fs.FileInfo, path string) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", path)
	}
	if err := owned(info, path); err != nil {
		return err
	}
	if info.Mode().Perm()&anyByOthers != 0 {
		return &Error{fmt.Sprintf("others than its owner may use %s (mode %04o)", path, mode(info)), "chmod 0600 " + path}
	}
	return nil
}

func owned(info fs.FileInfo, name string) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("the owner of %s is not known", name)
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return &Error{fmt.Sprintf("%s belongs to user %d, not to root", name, st.Uid), "chown root " + name + ", once it is clear who made it"}
	}
	return nil
}

// mode returns the mode in the form of chmod(1).
func mode(info fs.FileInfo) uint32 {
	m := uint32(info.Mode().Perm())
	if info.Mode()&fs.ModeSticky != 0 {
		m |= 0o1000
	}
	return m
}
