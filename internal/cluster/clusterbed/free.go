// SPDX-License-Identifier: Apache-2.0

package clusterbed

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
)

// Ports of servers are below those that the kernel gives to connections (net.ipv4.ip_local_port_range, from 32768): a connection
// could take one before its server listens there, or while the server is away.
const firstPort, lastPort = 12000, 32000

var nextPort atomic.Uint32

// Free returns an address of loopback that nothing listens on, and that no other call of the process has returned.
func Free(t testing.TB) string {
	t.Helper()
	for {
		port := firstPort + nextPort.Add(1)
		if port > lastPort {
			t.Fatalf("no free port from %d to %d", firstPort, lastPort)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address) //nolint:noctx // a test's
		if err == nil {
			_ = l.Close()
			return address
		}
	}
}
