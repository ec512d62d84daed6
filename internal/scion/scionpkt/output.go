// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writeOutput makes write fill the file at path, and follows symbolic links. If it is a regular file, a new
// file replaces it once everything has been written. Devices, FIFOs and the file behind stdout are written
// to directly, because replacing would destroy them.
func writeOutput(path string, stdout io.Writer, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replaceFile(path, 0o644, write)
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	case isOpen(stdout, info):
		return write(stdout)
	case info.Mode().IsRegular():
		return replaceFile(path, info.Mode().Perm(), write)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// isOpen reports whether w is the file of info, as it is for /dev/stdout.
func isOpen(w io.Writer, info fs.FileInfo) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(open, info)
}

// replaceFile writes a temporary file in the directory of the file at path, and renames it.
func replaceFile(path string, mode fs.FileMode, write func(io.Writer) error) error {
	path, err := followLinks(path)
	if err != nil {
		return err
	}
	dir, _ := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	tmp, err := os.CreateTemp(dir, ".culvert-gen-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	err = write(tmp)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// followLinks returns the name at the end of a chain of symbolic links. The file need not exist.
func followLinks(path string) (string, error) {
	const most = 40 // as many as the kernel follows
	for range most {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link
		}
		if !filepath.IsAbs(target) {
			// Join would remove "..", which is wrong if the directory is a link.
			dir, _ := filepath.Split(path)
			target = dir + target
		}
		path = target
	}
	return "", syscall.ELOOP
}
