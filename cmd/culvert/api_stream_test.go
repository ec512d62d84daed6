// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
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
		"/v1/capture?expression=udp+porrt": 400, "/v1/capture?verdict=x": 400, "/v1/capture?reason=x": 400, "/v1/capture?in=1": 400, "/v1/capture?snap=0": 400,
		"/v1/capture?reason=filter&stage=route": 400, "/v1/capture?stage=filter&verdict=punt": 400, "/v1/capture?out=true&reason=filter": 400,
		"/v1/capture?interface=nope": 422, "/v1/capture?interface=lo": 422, "/v1/capture?w=x": 400, "/v1/capture?expression=a&expression=b": 400,
	} {
		if status, _, text := fetch(t, controlSocket, "GET", path); status != want || strings.Count(text, "\n") != 1 || strings.Contains(text, "--") {
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
	if text := p.errs.String(); !strings.Contains(text, "a program captures packets") || strings.Contains(text, "panic") ||
		strings.Contains(text, "broken pipe") || strings.Contains(text, "level=WARN") {
		t.Errorf("the log has %s", text)
	}
}

// await waits for something that comes at last.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: " + what)
		}
	}
}

// rssOf returns how much memory a process has, in KiB.
func rssOf(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(err)
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatalf("no VmRSS in %s", text)
	return 0
}

// TestStoppedCapture has a client that captures and stops reading. No packet waits for it, it takes no memory without bound, others are
// answered, and changes go on. When it reads on, it gets packets again, and is told what was lost. When it goes without, the log says
// that, and the programs are as before.
func TestStoppedCapture(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0+"[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	capturing := func() bool { return strings.Contains(b.expect(0, "", "status"), "capture  by process") }
	// These are more bytes than all buffers hold: those of the kernel for each CPU, what waits to be written, and the socket's.
	long := append(frame("198.51.100.1", 5), make([]byte, 1400)...)
	const mib = 1 << 20
	burst := (runtime.NumCPU()*4 + 16) * mib / len(long)
	sent := 0
	flood := func() {
		t.Helper()
		b.send(burst, long)
		sent += burst
		b.counted("a", uint64(sent))
	}
	flood()
	before := rssOf(t, p.cmd.Process.Pid)
	a, leave := open(t, controlSocket, "/v1/capture?expression=udp")
	if a.StatusCode != 200 || !capturing() {
		t.Fatalf("%s, and it captures: %t", a.Status, capturing())
	}
	for range 3 {
		flood()
	}
	if now := rssOf(t, p.cmd.Process.Pid); now > before+(64+4*runtime.NumCPU())<<10 {
		t.Errorf("the process had %d MiB, and has %d beside a client that does not read", before>>10, now>>10)
	}
	for _, socket := range []string{showSocket, controlSocket} {
		for _, path := range []string{"/v1/status", "/v1/filter", "/metrics"} {
			if status, _, text := fetch(t, socket, "GET", path); status != 200 {
				t.Errorf("%s: %d %s", path, status, text)
			}
		}
	}
	if status, text := post(t, "/v1/filter/add", `{"rule": "b", "action": "count", "expression": "icmp"}`); status != 200 {
		t.Errorf("a change: %d %s", status, text)
	}
	b.expect(0, "changes nothing", "reload", "--dry-run")
	if status, _, text := fetch(t, controlSocket, "GET", "/v1/capture"); status != 409 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "captures on data plane culvert already") {
		t.Errorf("a second capture: %d %s", status, text)
	}
	b.expect(1, "captures on data plane culvert already", "capture", "-n", "1")

	// It reads on, as far as a packet that was sent by then.
	r, err := pcapgo.NewNgReader(a.Body, pcapgo.DefaultNgReaderOptions)
	must(err)
	frames, marked := 0, make(chan bool)
	go func() {
		defer close(marked)
		for {
			f, _, err := r.ReadPacketData()
			if err != nil || len(f) < len(long) {
				return
			}
			frames++
		}
	}()
	for end := time.Now().Add(time.Minute); ; {
		b.send(1, frame("198.51.100.1", 5)) // this has room as soon as there is some
		sent++
		select {
		case <-marked:
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
			t.Error("a client that reads on gets no packets")
		}
		break
	}
	if frames == 0 || frames >= 3*burst {
		t.Errorf("it has got %d of %d packets", frames, 3*burst)
	}
	b.counted("a", uint64(sent))
	leave()
	await(t, "the capture has ended", func() bool { return !capturing() })

	// Another one stops, and goes without reading on.
	a, leave = open(t, controlSocket, "/v1/capture?expression=udp")
	if a.StatusCode != 200 {
		t.Fatal(a.Status)
	}
	flood()
	flood()
	leave()
	await(t, "the capture has ended", func() bool { return !capturing() })
	b.expect(0, "", "filter", "del", "b")
	flood()
	p.interrupt(t)
	log := p.errs.String()
	if lost := regexp.MustCompile(`msg="a program captures no more packets" by="uid 0 pid \d+" packets=\d+ lost=[1-9]`).FindAllString(log, -1); len(lost) != 2 || strings.Contains(log, "panic") {
		t.Errorf("what was lost is not in the log, for each: %s", log)
	}
}

// TestStoppedCaptureAtTheEnd ends the process while a client that captures does not read. It ends soon all the same. One that reads gets
// a whole file, with what was lost before.
func TestStoppedCaptureAtTheEnd(t *testing.T) {
	for _, reads := range []bool{false, true} {
		t.Run(fmt.Sprintf("reads %t", reads), func(t *testing.T) { stopAtTheEnd(t, reads) })
	}
}

func stopAtTheEnd(t *testing.T, reads bool) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0+"[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	a, _ := open(t, controlSocket, "/v1/capture?expression=udp")
	if a.StatusCode != 200 {
		t.Fatal(a.Status)
	}
	long := append(frame("198.51.100.1", 5), make([]byte, 1400)...)
	const burst = 20000
	b.send(burst, long)
	b.counted("a", burst)
	if !reads {
		p.interrupt(t)
		if status := b.expect(0, "", "status"); strings.Contains(status, "capture  ") {
			t.Errorf("the capture is left: %s", status)
		}
		return
	}
	r, err := pcapgo.NewNgReader(a.Body, pcapgo.DefaultNgReaderOptions)
	must(err)
	frames, ended := uint64(0), make(chan error)
	go func() {
		for {
			if _, _, err := r.ReadPacketData(); err != nil {
				ended <- err
				return
			}
			frames++
		}
	}()
	p.interrupt(t)
	if err := <-ended; err != io.EOF {
		t.Errorf("the file ends with %v", err)
	}
	i, err := r.Interface(0)
	must(err)
	if s := i.Statistics; s.PacketsDropped == 0 || frames == 0 {
		t.Errorf("%d frames, and the file says %+v", frames, s)
	}
}

// TestEventsOfLimits has packets that are over the rate of a rule. An event says so, and another one that it has ended.
func TestEventsOfLimits(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0+"[[filter.rule]]\nname = 'a'\naction = 'limit'\nrate = '10pps'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	a, _ := open(t, showSocket, "/v1/events")
	if a.StatusCode != 200 {
		t.Fatal(a.Status)
	}
	r := bufio.NewScanner(a.Body)
	stop := b.keepSending(frame("198.51.100.1", 5))
	for _, want := range []string{"limit", "limit-end"} {
		var e events.Event
		for e.Event != want {
			if !r.Scan() {
				t.Fatalf("no event %s: %v", want, r.Err())
			}
			must(json.Unmarshal(r.Bytes(), &e))
		}
		if e.Fields["interface"] != "ft0" || e.Fields["reason"] != "filter-limit" {
			t.Errorf("%+v", e)
		}
		if want == "limit" {
			stop()
		}
	}
	p.interrupt(t)
}
