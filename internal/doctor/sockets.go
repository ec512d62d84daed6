// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"culvert/internal/host/procnet"
)

// checkSockets looks for processes other than server among those that have sockets at the SCION router's addresses. server is
// the process that runs the router, 0 for none. Several processes may bind one address, and the kernel then distributes the
// packets among them.
func checkSockets(holders []procnet.Holder, server int) []Finding {
	const check = "sockets"
	var found []Finding
	reported := map[int]bool{}
	for _, h := range holders {
		if h.PID == server && server != 0 || reported[h.PID] {
			continue
		}
		reported[h.PID] = true
		f := Finding{
			Status:  Fail,
			Check:   check,
			Finding: fmt.Sprintf("%s is in use by %s, which takes packets away from culvert", h.Addr, h),
			Command: fmt.Sprintf("kill %d", h.PID),
		}
		if h.PID == 0 {
			f.Command = "ss -ulpn"
		}
		found = append(found, f)
	}
	if found == nil {
		f := Finding{Check: check, Finding: "no other process uses the router's addresses and ports"}
		if server != 0 {
			f.Finding = fmt.Sprintf("the router runs already as process %d, alone on its addresses and ports", server)
		}
		found = []Finding{f}
	}
	return found
}
