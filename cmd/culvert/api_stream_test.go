// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/events"
)

// open sends a GET request, and returns the head of the answer with a reader of what follows. The connection ends with the test.
func open(t *testing.T, socket, path string) (*http.Response, func()) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(err)
	t.Cleanup(func() { c.Close() })
	must(c.SetDeadline(time.Now().Add(5 * time.Minute)))
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
	must(err)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(err)
	return a, func() { c.Close() }
}

// TestEvents reads events from both sockets: changes, reloads, what is refused.
func TestEvents(t *testing.T) {
	b := newPairsBed(t)
	page := newAnswers(t)
	const head = "interfaces = ['ft0']\n[filter]\n"
	file := b.file("c.toml", head)
	p := runAttached(t, file)
	b.eventually("changes nothing", "reload --dry-run")
	var readers []*bufio.Scanner
	for _, socket := range []string{showSocket, controlSocket} {
		a, _ := open(t, socket, "/v1/events")
		if a.StatusCode != 200 || a.Header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("%s: %s %v", socket, a.Status, a.Header)
		}
		readers = append(readers, bufio.NewScanner(a.Body))
	}
	b.filter(0, "added", "add --name x drop icmp")
	rewrite(t, file, head+"[[filter.rule]]\nname = 'r'\naction = 'drop'\nexpression = 'udp'\n")
	b.expect(0, "", "reload")
	rewrite(t, file, head+"[[filter.rule]]\nname = 'r'\naction = 'dropp'\n")
	if status, _, _ := culvert(t, "reload"); status != 1 {
		t.Errorf("a bad file is reloaded with status %d", status)
	}
	rewrite(t, file, head)
	b.expect(0, "", "reload", "--confirm", "60")
	b.expect(0, "", "reload", "--keep")
	for n, r := range readers {
		for _, want := range []string{"change", "reload", "reload-refused", "reload", "reload-kept"} {
			var e events.Event
			for e.Event != want {
				if !r.Scan() {
					t.Fatalf("reader %d: no event %s: %v", n, want, r.Err())
				}
				page.validate(t, "an event", "/components/schemas/events.Event", r.Text())
				must(json.Unmarshal(r.Bytes(), &e))
			}
			if want == "change" && (e.Fields["verb"] != "filter add" || e.Fields["done"] != "rule x added") {
				t.Errorf("%+v", e)
			}
		}
	}
	var close func()
	for range 7 {
		_, close = open(t, showSocket, "/v1/events")
	}
	if a, _ := open(t, showSocket, "/v1/events"); a.StatusCode != 503 {
		t.Errorf("the ninth reader: %s", a.Status)
	}
	close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if a, _ := open(t, showSocket, "/v1/events"); a.StatusCode == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a reader has gone, and there is no room for another")
		}
	}
	if status, _, _ := fetch(t, showSocket, "GET", "/v1/version"); status != 200 {
		t.Errorf("beside readers: %d", status)
	}
	p.interrupt(t)
	for _, r := range readers {
		for r.Scan() {
		}
	}
}

// TestCaptureStream captures over root's socket. One program at a time captures, and the programs are as before when it goes.
func TestCaptureStream(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0+"[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	for path, want := range map[string]int{
		"/v1/capture?expression=udp+porrt": 422, "/v1/capture?verdict=x": 400, "/v1/capture?in=1": 400, "/v1/capture?snap=0": 400,
		"/v1/capture?interface=nope": 422, "/v1/capture?w=x": 400, "/v1/capture?expression=a&expression=b": 400,
	} {
		if status, _, text := fetch(t, controlSocket, "GET", path); status != want || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
	if status, _, _ := fetch(t, showSocket, "GET", "/v1/capture"); status != 404 {
		t.Errorf("the socket that shows captures: %d", status)
	}
	before := b.program()
	a, _ := open(t, controlSocket, "/v1/capture?expression=udp+port+5&n=3&in=true&verdict=drop")
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "application/vnd.tcpdump.pcap" {
		t.Fatalf("%s %v", a.Status, a.Header)
	}
	if other, _ := open(t, controlSocket, "/v1/capture"); other.StatusCode != 409 {
		t.Errorf("a second capture: %s", other.Status)
	}
	b.expect(1, "captures on data plane culvert already", "capture", "-n", "1")
	b.expect(0, "changes nothing", "reload")
	b.filter(0, "added", "add --name later count icmp")
	b.send(2, frame("198.51.100.1", 6))
	b.send(3, frame("198.51.100.1", 5))
	r, err := pcapgo.NewNgReader(a.Body, pcapgo.DefaultNgReaderOptions)
	must(err)
	frames := 0
	for {
		if _, _, err := r.ReadPacketData(); err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
		frames++
	}
	if frames != 3 {
		t.Errorf("%d frames, want 3", frames)
	}
	for range 3 { // clients that go away
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			a, leave := open(t, controlSocket, "/v1/capture")
			leave()
			if a.StatusCode == 200 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("a client has gone, and its capture does not end")
			}
		}
	}
	b.eventually("changes nothing", "reload --dry-run")
	b.counted("a", 3)
	p.interrupt(t)
	if after := b.program(); after == 0 || before == 0 {
		t.Errorf("program %d before, %d after", before, after)
	}
	if text := p.errs.String(); !strings.Contains(text, "a program captures packets") || strings.Contains(text, "panic") {
		t.Errorf("the log has %s", text)
	}
}
