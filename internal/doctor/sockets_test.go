// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"culvert/internal/host/procnet"
)

func TestCheckSockets(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:50000")
	router := procnet.Holder{Addr: at, PID: 7, Name: "router"}
	for _, tt := range []struct {
		name    string
		holders []procnet.Holder
		server  int
		want    []want
	}{
		{"no process", nil, 0, []want{{OK, "no other process", ""}}},
		{"culvert only", []procnet.Holder{{Addr: at, PID: 8, Name: "culvert"}}, 8, []want{{OK, "as process 8", ""}}},
		{"culvert and another process", []procnet.Holder{router, {Addr: at, PID: 8, Name: "culvert"}}, 8,
			[]want{{Fail, "192.0.2.1:50000 is in use by router (process 7)", "kill 7"}}},
		{"one process at two addresses", []procnet.Holder{router, router}, 0,
			[]want{{Fail, "192.0.2.1:50000 is in use by router (process 7)", "kill 7"}}},
		{"unknown process", []procnet.Holder{{Addr: at}}, 0, []want{{Fail, "cannot be seen", "ss -ulpn"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkSockets(tt.holders, tt.server)
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v, want %d findings", got, len(tt.want))
			}
			for i, w := range tt.want {
				w.check(t, &got[i])
			}
		})
	}
}

// childSocket names the environment variable that makes TestChildSocket hold a socket.
const childSocket = "CULVERT_TEST_SOCKET"

// TestChildSocket holds a socket until it is killed, when TestSocketsCommandMends starts it.
func TestChildSocket(t *testing.T) {
	address := os.Getenv(childSocket)
	if address == "" {
		return
	}
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("holding")
	_, _, _ = conn.ReadFrom(make([]byte, 1)) // blocks with the socket open; an empty select would be a deadlock to the runtime
}

func TestSocketsCommandMends(t *testing.T) {
	inNamespace(t)
	sh(t, "ip link set lo up")
	at := netip.MustParseAddrPort("127.0.0.1:30042")
	child := exec.Command(os.Args[0], "-test.run=^TestChildSocket$")
	child.Env = append(os.Environ(), childSocket+"="+at.String())
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	sockets := func() Finding {
		r, err := Run(Options{Interfaces: []string{"lo"}, Sockets: []netip.AddrPort{at}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Findings[slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == "sockets" })]
	}
	found := sockets()
	want{Fail, "127.0.0.1:30042 is in use by ", fmt.Sprintf("kill %d", child.Process.Pid)}.check(t, &found)
	sh(t, found.Command)
	_ = child.Wait()
	found = sockets()
	want{OK, "no other process", ""}.check(t, &found)
}
