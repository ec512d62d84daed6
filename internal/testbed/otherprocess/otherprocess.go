// SPDX-License-Identifier: Apache-2.0

// Package otherprocess has another process hold a socket for a test. The process is the test's own program: a test that imports the
// package needs nothing else.
package otherprocess

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Variables of the environment that make the program hold a socket, in the place of its tests.
const (
	networkVariable = "CULVERT_TEST_NETWORK"
	addressVariable = "CULVERT_TEST_ADDRESS"
)

func init() {
	network, address := os.Getenv(networkVariable), os.Getenv(addressVariable)
	if network == "" {
		return
	}
	at, err := hold(network, address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(at)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// hold opens a socket, which stays open as long as the process runs.
func hold(network, address string) (net.Addr, error) {
	if network == "udp" {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			return nil, err
		}
		return c.LocalAddr(), nil
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return l.Addr(), nil
}

// Hold has another process hold a socket of a network, "tcp" or "udp", at an address until end is called or the test ends. It
// returns the process and the address, whose port the kernel has chosen if address has port 0.
func Hold(t testing.TB, network, address string) (pid int, at netip.AddrPort, end func()) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), networkVariable+"="+network, addressVariable+"="+address)
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { in.Close(); _ = child.Wait() }
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if at, err = netip.ParseAddrPort(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return child.Process.Pid, at, end
}
