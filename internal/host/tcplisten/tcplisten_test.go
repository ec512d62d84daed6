// SPDX-License-Identifier: Apache-2.0

package tcplisten

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"culvert/internal/testbed/otherprocess"
)

// TestCheck compares Check with what the kernel says to a socket.
func TestCheck(t *testing.T) {
	for _, held := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", ":0"} {
		pid, at, _ := otherprocess.Hold(t, "tcp", held)
		port := strconv.Itoa(int(at.Port()))
		for _, host := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]", ""} {
			address := host + ":" + port
			l, want := net.Listen("tcp", address)
			if want == nil {
				l.Close()
			}
			err := Check(address, 0)
			if (err == nil) != (want == nil) {
				t.Errorf("%s is held, %s: %v, the kernel says %v", held, address, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s is in use by ", address)) {
				t.Errorf("%s: %v", address, err)
			}
			if err := Check(address, pid); err != nil {
				t.Errorf("%s, which process %d may hold: %v", address, pid, err)
			}
		}
	}
}

func TestWrongAddress(t *testing.T) {
	for address, want := range map[string]string{
		"198.51.100.77:80":   "this host does not have the address 198.51.100.77",
		"[2001:db8::77]:80":  "this host does not have the address 2001:db8::77",
		"127.0.0.1:99999":    "invalid port",
		"127.0.0.1:nosuch":   "unknown port",
		"127.0.0.1:0":        "",
		"[::1]:0":            "",
		"no.such.invalid.:9": "no.such.invalid.",
	} {
		switch err := Check(address, 0); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", address, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
