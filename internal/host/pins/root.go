// SPDX-License-Identifier: Apache-2.0

// Package pins manages links of XDP programs that are pinned in bpffs: their paths, locks and owners, who may change them, and
// which interface each link is on. It does not know what the programs do.
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
All pins are in <bpffs>/culvert/<inode of the network namespace>/<owner>/. The directory of a data plane has the escaped name
of the data plane. Other owners have names that Escape never returns (Reserved).
*/
const rootDir = "culvert"

// Bpffs refuses dots in names, and names of routers and interfaces may have them.
var (
	escaper   = strings.NewReplacer("%", "%25", ".", "%2e")
	unescaper = strings.NewReplacer("%25", "%", "%2e", ".")
)

// Escape returns a name for a pin that bpffs accepts. It is injective: Unescape is its inverse.
func Escape(name string) string { return escaper.Replace(name) }

// Unescape returns the name that Escape has escaped.
func Unescape(pin string) string { return unescaper.Replace(pin) }

// Reserved tells whether pin is a name that Escape never returns: a percent sign followed by a word.
func Reserved(pin string) bool {
	return strings.HasPrefix(pin, "%") && !strings.HasPrefix(pin, Escape("%")) && !strings.HasPrefix(pin, Escape("."))
}

// Shown returns the path of an owner's directory as it is in the host's mount namespace, for messages.
func Shown(dir string) string {
	return filepath.Join(bpffs.Path, rootDir, filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
}

// mountHint is the command that mounts a bpffs which only root may write to. By default anybody may.
const mountHint = "mount -t bpf -o mode=0700 bpf " + bpffs.Path

// MakeRoot is Root, but it mounts a bpffs if there is none.
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

// Root returns the directory of all pins. It is false if no bpffs is mounted. It is an error if anybody but root may change the
// directory, since a pin could then be anybody's program. The directory itself may not exist yet.
func Root() (root string, ok bool, err error) {
	path, ok := bpffs.Find()
	if !ok {
		return "", false, nil
	}
	path = bpffs.Hold(path)
	root = filepath.Join(path, rootDir)
	// Hold returns a symbolic link of procfs to a directory. The slash makes the kernel follow it.
	if err := Trust(path+"/", bpffs.Path); err != nil {
		return "", false, err
	}
	return root, true, Trust(root, filepath.Join(bpffs.Path, rootDir))
}

// Trust returns an error if anybody but root may change the directory dir, which messages call name. It is no error if dir does
// not exist.
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

// TrustOwner is Trust for an owner's directory and for its parent, that of the network namespace.
func TrustOwner(dir string) error {
	shown := Shown(dir)
	if err := Trust(filepath.Dir(dir), filepath.Dir(shown)); err != nil {
		return err
	}
	return Trust(dir, shown)
}
