// SPDX-License-Identifier: Apache-2.0

package tcplisten

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const childAddress = "CULVERT_TEST_LISTEN"

// TestChild listens until its input ends, when TestCheck starts it.
func TestChild(t *testing.T) {
	address := os.Getenv(childAddress)
	if address == "" {
		return
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fmt.Println(l.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// listenElsewhere has another process listen at an address, and returns the process and the port.
func listenElsewhere(t *testing.T, address string) (pid int, port string) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), childAddress+"="+address)
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
	t.Cleanup(func() { in.Close(); _ = child.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, port, err = net.SplitHostPort(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return child.Process.Pid, port
}

// TestCheck compares Check with what the kernel says to a socket.
func TestCheck(t *testing.T) {
	for _, held := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", ":0"} {
		pid, port := listenElsewhere(t, held)
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
