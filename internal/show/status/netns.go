// SPDX-License-Identifier: Apache-2.0

package status

import "culvert/internal/host/netnsname"

// netnsNames returns the names of the named network namespaces by their inodes.
func netnsNames() map[uint32]string { return netnsname.All() }
