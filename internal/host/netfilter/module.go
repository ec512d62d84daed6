// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// askable reports whether to ask nf_tables for its rules. The first request would load the module, so askable
// returns false if nf_tables is certainly neither loaded nor built in, and there are no rules. Many
// containers have no list of built-in modules. askable then returns true, since a loaded module does less harm
// than a rule that is not found. root is the directory with proc and lib.
func askable(root string) bool {
	loaded, err := os.ReadFile(filepath.Join(root, "proc/modules"))
	if err != nil || strings.HasPrefix(string(loaded), "nf_tables ") || strings.Contains(string(loaded), "\nnf_tables ") {
		return true
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return true
	}
	list := filepath.Join(root, "lib/modules", unix.ByteSliceToString(u.Release[:]), "modules.builtin")
	builtIn, err := os.ReadFile(list)
	return err != nil || strings.Contains(string(builtIn), "/nf_tables.ko")
}
