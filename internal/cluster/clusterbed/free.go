// SPDX-License-Identifier: Apache-2.0

package clusterbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports of servers are below those that the kernel gives to connections (net.ipv4.ip_local_port_range, from 32768): a connection
// could take one before its server listens there, or while the server is away.
const firstPort, ports = 12000, 20000

// Free returns an address of loopback that nothing listens on by TCP, and that no other call returns until the test has ended, in other processes
// neither: the UDP port of the same number is held as long.
func Free(t testing.TB) string {
	t.Helper()
	for range ports {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(ports))
		held, err := net.ListenPacket("udp", address) //nolint:noctx // a test's
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address) //nolint:noctx // a test's
		if err != nil {
			_ = held.Close()
			continue
		}
		_ = l.Close()
		t.Cleanup(func() { _ = held.Close() })
		return address
	}
	t.Fatalf("no free port from %d on", firstPort)
	return ""
}
