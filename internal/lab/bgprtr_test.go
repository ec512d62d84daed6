// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// slowRTREnv makes the test binary a slow RTR cache.
const slowRTREnv = "CULVERT_TEST_SLOW_RTR"

// slowRTRPause is how long the slow cache sends nothing. BIRD looks every "retry" seconds, and resets the session if there was
// no prefix of the session's table for two seconds.
const slowRTRPause = 4 * time.Second

// serveSlowRTR serves authorizations by RTR (RFC 8210) as stayrtr does, which sends IPv6 before IPv4, but makes a pause between
// them, as stayrtr does on a busy machine that has some ten thousands of them.
func serveSlowRTR(roaFile string) error {
	b, err := os.ReadFile(roaFile)
	if err != nil {
		return err
	}
	var served struct {
		ROAs []roa `json:"roas"`
	}
	if err := json.Unmarshal(b, &served); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", rtrPort))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			fmt.Println("session:", answerRTR(conn, served.ROAs))
		}()
	}
}

// answerRTR answers each query of a session with all authorizations.
func answerRTR(conn net.Conn, all []roa) error {
	pdu := func(kind byte, session uint16, rest ...byte) []byte {
		b := []byte{1, kind}
		b = binary.BigEndian.AppendUint16(b, session)
		b = binary.BigEndian.AppendUint32(b, uint32(8+len(rest)))
		return append(b, rest...)
	}
	for {
		query := make([]byte, 8)
		if _, err := io.ReadFull(conn, query); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(query[4:]))-8); err != nil {
			return err
		}
		var families [2][]byte // IPv6, IPv4
		for _, r := range all {
			i, kind := 0, byte(6)
			if r.Prefix.Addr().Is4() {
				i, kind = 1, 4
			}
			rest := append([]byte{1, byte(r.Prefix.Bits()), byte(r.MaxLength), 0}, r.Prefix.Addr().AsSlice()...)
			families[i] = append(families[i], pdu(kind, 0, binary.BigEndian.AppendUint32(rest, r.ASN)...)...)
		}
		end := []byte{0, 0, 0, 0} // serial number, then the intervals for refresh, retry and expire
		for _, seconds := range []uint32{3600, 600, 7200} {
			end = binary.BigEndian.AppendUint32(end, seconds)
		}
		if _, err := conn.Write(append(pdu(3, 1), families[0]...)); err != nil {
			return err
		}
		time.Sleep(slowRTRPause)
		if _, err := conn.Write(append(families[1], pdu(7, 1, end...)...)); err != nil {
			return err
		}
	}
}

// TestBGPSlowRTR lets the RTR cache make a pause that is longer than the one after which BIRD may take it for dead.
func TestBGPSlowRTR(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", slowRTREnv, self)
	if err := os.WriteFile(filepath.Join(dir, "stayrtr"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	l := upBGP(t, "slow", Linux, Options{Routes: Routes{Limited: true}, Timeout: time.Minute})
	if l.BGP.IPv4.Filtered != l.BGP.IPv4.Invalid || l.BGP.IPv6.Filtered != l.BGP.IPv6.Invalid {
		t.Errorf("the state says %+v and %+v", l.BGP.IPv4, l.BGP.IPv6)
	}
}

func TestStall(t *testing.T) {
	s := stall{limit: 20 * time.Second}
	start := time.Now()
	for _, step := range []struct {
		at, n int
		over  bool
	}{
		{0, 0, false}, {19, 0, false}, {20, 0, true}, // nothing came
		{21, 0, false}, {59, 0, false}, {60, 0, true}, // the limit has doubled
		{139, 7, false}, {218, 7, false}, {219, 7, true}, // it begins again with each change
	} {
		if _, over := s.over(step.n, start.Add(time.Duration(step.at)*time.Second)); over != step.over {
			t.Errorf("%d after %d s: over is %v, want %v", step.n, step.at, over, step.over)
		}
	}
}
