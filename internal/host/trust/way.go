// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// mostLinks is how many symbolic links Way follows, as the kernel does (path_resolution(7)).
const mostLinks = 40

// Way returns an error unless every directory on the way to path, and every symbolic link, belongs to root (or to this process's
// user) and no one else may change it. Who may write to such a directory can put another file in the place of path. A directory
// with the sticky bit, as /tmp, is no error, because nobody may remove what others have there. path itself is not looked at,
// unless it is a symbolic link.
func Way(path string) error {
	rest, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	at := "/"
	for links := 0; rest != ""; {
		if err := stepOf(at, path); err != nil {
			return err
		}
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return asRoot(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if err := owned(info, next); err != nil {
			return err
		}
		if strings.HasPrefix(next, "/proc/") {
			at = next // the kernel follows links such as /proc/self/fd/7 to what they stand for, which may have no path
			continue
		}
		if links++; links > mostLinks {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return asRoot(err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = strings.TrimRight(target+"/"+rest, "/")
	}
	return nil
}

// stepOf returns an error if others than root can change the directory dir on the way to path.
func stepOf(dir, path string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return asRoot(err)
	}
	if err := owned(info, dir); err != nil {
		return err
	}
	if info.Mode().Perm()&writeByOthers != 0 && info.Mode()&fs.ModeSticky == 0 {
		return &Error{fmt.Sprintf("others than root may write to %s (mode %04o), the way to %s", dir, mode(info), path), "chmod go-w " + dir}
	}
	return nil
}
