// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// askable says whether nf_tables can be asked without loading it: the kernel loads the module at the
// first question. It is false only when it is certain that nf_tables is neither loaded nor built in:
// then there are no rules. Without a list of what is built in, as in many containers, the question is
// put: a loaded module does less harm than a rule not seen. root is where /proc and /lib are.
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
