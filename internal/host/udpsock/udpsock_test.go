// SPDX-License-Identifier: Apache-2.0

package udpsock

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childAddress names the environment variable that makes TestChild hold a socket.
const childAddress = "CULVERT_TEST_SOCKET"

// TestChild opens a socket and holds it until its input ends, when TestOthers starts it.
func TestChild(t *testing.T) {
	address := os.Getenv(childAddress)
	if address == "" {
		return
	}
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.LocalAddr())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestOthers(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
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
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			at := netip.MustParseAddrPort(strings.TrimSpace(line))

			own, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.Addr().AsSlice()})
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			addrs := []netip.AddrPort{own.LocalAddr().(*net.UDPAddr).AddrPort(), at}
			got, err := Others(addrs)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Addr != at || got[0].PID != child.Process.Pid || got[0].Name == "" {
				t.Errorf("got %+v, want process %d at %s alone", got, child.Process.Pid, at)
			}

			in.Close()
			_ = child.Wait()
			if got, err := Others(addrs); err != nil || got != nil {
				t.Errorf("got %+v (%v) after the process has ended", got, err)
			}
		})
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:C350":                         "127.0.0.1:50000",
		"B80D0120000000000000000001000000:0035": "[2001:db8::1]:53",
		"0000000000000000FFFF0000010200C0:0035": "192.0.2.1:53",
	} {
		if got, ok := parseAddress(text); !ok || got.String() != want {
			t.Errorf("%s gives %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "local_address", "0100007F", "01:02", "0100007F:10000"} {
		if got, ok := parseAddress(text); ok {
			t.Errorf("%q gives %s, want nothing", text, got)
		}
	}
}
