// SPDX-License-Identifier: Apache-2.0

// Package pins keeps attachments of XDP programs in bpffs: where they are pinned, who may change them, and which interface
// of which network namespace each of them is on. It does not know what the programs do.
package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"culvert/internal/bpfobj"
	"culvert/internal/host/bpffs"
	"culvert/internal/host/trust"
)

/*
All pins are in <bpffs>/culvert/<inode of the network namespace>/<owner>/. An owner is a data plane, by its escaped name,
or something else that attaches programs, whose directory has a name that no data plane's can be (Reserved).
*/
const rootDir = "culvert"

// Only the dot is refused in names by bpffs, and it may be in router IDs and interface names.
var (
	escaper   = strings.NewReplacer("%", "%25", ".", "%2e")
	unescaper = strings.NewReplacer("%25", "%", "%2e", ".")
)

// Escape makes a name fit for bpffs, two of them never the same; Unescape turns it back.
func Escape(name string) string { return escaper.Replace(name) }

// Unescape returns the name that a pin was made for.
func Unescape(pin string) string { return unescaper.Replace(pin) }

// Reserved tells whether Escape gives such a name to nothing: a percent sign, and a word.
func Reserved(pin string) bool {
	return strings.HasPrefix(pin, "%") && !strings.HasPrefix(pin, Escape("%")) && !strings.HasPrefix(pin, Escape("."))
}

// Shown returns a directory below the one for all pins as the host sees it.
func Shown(dir string) string {
	return filepath.Join(bpffs.Path, rootDir, filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
}

// mountHint is how people mount a bpffs that is root's alone. Without the mode anyone may write to it.
const mountHint = "mount -t bpf -o mode=0700 bpf " + bpffs.Path

// MakeRoot returns the directory for all pins, mounting bpffs when nobody has.
func MakeRoot() (string, error) {
	root, ok, err := Root()
	if ok || err != nil {
		return root, err
	}
	if err := bpffs.Mount(); err != nil {
		return "", fmt.Errorf("mounting bpffs on %s: %w (%s)", bpffs.Path, err, mountHint)
	}
	root, ok, err = Root()
	if err == nil && !ok {
		err = fmt.Errorf("%s is not a bpffs even after mounting it (%s)", bpffs.Path, mountHint)
	}
	return root, err
}

// Root returns the directory for all pins if a bpffs is there already, and an error if others than root may
// change what is in it: a pin there could be anybody's program.
func Root() (root string, ok bool, err error) {
	path, ok := bpffs.Find()
	if !ok {
		return "", false, nil
	}
	path = bpffs.Hold(path)
	root = filepath.Join(path, rootDir)
	// Hold's path is a link of procfs to a directory, so it ends with a slash to be looked through.
	if err := Trust(path+"/", bpffs.Path); err != nil {
		return "", false, err
	}
	return root, true, Trust(root, filepath.Join(bpffs.Path, rootDir))
}

// Trust refuses a directory for pins that others than root may change. One that is not there is fine.
func Trust(dir, name string) error {
	err := trust.DirAs(dir, name)
	switch {
	case err == nil || errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, os.ErrPermission):
		return bpfobj.PermissionError("reading " + name)
	}
	return fmt.Errorf("no pin is trusted: %w", err)
}

// TrustOwner looks at the directories of an owner that are below the one for all pins.
func TrustOwner(dir string) error {
	shown := Shown(dir)
	if err := Trust(filepath.Dir(dir), filepath.Dir(shown)); err != nil {
		return err
	}
	return Trust(dir, shown)
}
