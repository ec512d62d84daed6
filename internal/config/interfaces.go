// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// checkInterfaces returns the errors of names that no interface can have, and of names that are given twice.
func (n *Node) checkInterfaces(at Position) error {
	var errs Errors
	for i, name := range n.Interfaces {
		key := fmt.Sprintf("interfaces[%d]", i)
		switch {
		case slices.Contains(n.Interfaces[:i], name):
			errs.Add(at.Locate(key, fmt.Errorf("interfaces names %s twice: leave one out", name)))
		case name == "":
			errs.Add(at.Locate(key, errors.New("interfaces has an empty name: leave it out")))
		default:
			if wrong := Impossible(name); wrong != "" {
				errs.Add(at.Locate(key, fmt.Errorf("no interface can be named %q: %s: see 'ip link' for the names there are", name, wrong)))
			}
		}
	}
	return errs.Err()
}

// Impossible says why no interface can have a name, "" if one can: the rules of the kernel's dev_valid_name, which takes bytes for
// characters of Latin-1. An alternative name may be longer, but is no name to attach to.
func Impossible(name string) string {
	const space = " \t\n\v\f\r\xa0"
	switch {
	case name == "":
		return "it is empty"
	case name == "." || name == "..":
		return "it stands for a directory"
	case len(name) >= unix.IFNAMSIZ:
		return fmt.Sprintf("it has %d bytes, and the kernel takes at most %d", len(name), unix.IFNAMSIZ-1)
	}
	for _, b := range []byte(name) {
		switch {
		case b == '/' || b == ':' || b == 0:
			return fmt.Sprintf("the kernel takes no %q in it", b)
		case strings.IndexByte(space, b) >= 0:
			return "the kernel takes no blanks in it"
		}
	}
	return ""
}
