// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/events"
	"culvert/internal/lab"
)

// happenings are the events of a process, from a moment on.
type happenings struct{ lines *bufio.Scanner }

// eventsOf reads the events of the process that serves a data plane.
func eventsOf(t *testing.T, name string) happenings {
	t.Helper()
	var c net.Conn
	wait(t, "the socket that shows", func() (ok bool) {
		var err error
		c, err = net.Dial("unix", "/run/culvert/"+name+".show.sock")
		return err == nil
	})
	t.Cleanup(func() { c.Close() })
	check(t, c.SetDeadline(time.Now().Add(4*patience)))
	_, err := fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
	check(t, err)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(t, err)
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	return happenings{bufio.NewScanner(a.Body)}
}

// await waits for the next event of a kind that is as it should be.
func (h happenings) await(t *testing.T, kind string, is func(events.Event) bool) events.Event {
	t.Helper()
	for h.lines.Scan() {
		var e events.Event
		check(t, json.Unmarshal(h.lines.Bytes(), &e))
		if e.Event == kind && is(e) {
			return e
		}
	}
	t.Fatalf("no event %s: %v", kind, h.lines.Err())
	return events.Event{}
}

// TestEventsOfLosses has packets lost after their verdict. An event says where and how many, and another one that it has ended.
func TestEventsOfLosses(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "el"})
	p := b.serveAs(t, program(), "run", "-c", nodeConfig(t, b.lab, "rut"))
	happens := eventsOf(t, b.as.RouterID)
	check(t, b.lab.Do("b", func() error {
		link, err := netlink.LinkByName("to-rut")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, streamSize/2) // a veth does not take what is longer
	}))
	load := startLoad(t, b.from, b.stream(t, "", 0))
	of := func(e events.Event) bool { return e.Fields["interface"] == "to-a" && e.Fields["loss"] == "transmit" }
	if e := happens.await(t, "losses", of); e.Fields["packets"].(float64) < 1 {
		t.Errorf("%+v", e)
	}
	load.stop()
	happens.await(t, "losses-end", of)
	if !p.running() {
		t.Error("the process has ended")
	}
}
