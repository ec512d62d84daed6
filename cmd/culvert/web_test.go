// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// webStages is allStages with a page.
const webStages = allStages + "[web]\nlisten = '192.0.2.77:9480'\n"

// addr adds an address to lo, or deletes it.
func (b *filterBed) addr(what func(netlink.Link, *netlink.Addr) error, addr string) {
	b.t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(err)
	a, err := netlink.ParseAddr(addr)
	must(err)
	must(what(lo, a))
}

// TestWebPage has a page at an address that is not loopback's. The page has what the socket shows and nothing else, and pages of other
// origins get nothing. While the host does not have the address, status, log, metric and doctor say so, and packets go on.
func TestWebPage(t *testing.T) {
	b := newPairsBed(t)
	b.addr(netlink.AddrAdd, "192.0.2.77/32")
	p := runAttached(t, b.file("c.toml", webStages))
	p.waitFor(t, "a page shows what the data plane does\" url=http://192.0.2.77:9480/")
	p.waitFor(t, "the page has no password and no encryption: whoever reaches its address may look")
	b.eventually("page  http://192.0.2.77:9480/  OPEN", "status")
	b.eventually("data plane culvert: the page at 192.0.2.77:9480 has no password", "doctor")
	b.metric("127.0.0.1:9441", "culvert_web_up", "1")
	const at = "192.0.2.77:9480"
	b.send(3, frame("198.51.100.1", 5))
	b.counted("a", 3)
	for path, want := range map[string]string{
		"/": "<title>culvert</title>", "/main.js": "visibilitychange", "/page.css": "prefers-color-scheme", "/icon.svg": "<svg",
		"/v1/status": `{"routers":[{"router":"culvert"`, "/v1/filter": `"rule":"a"`, "/v1/lb": `"vip":"192.0.2.9:80/tcp"`,
		"/v1/route": `"ipv4":{`, "/v1/reasons": `"reason":"other"`, "/v1/version": `"version":`,
	} {
		if got := b.get(at, path); !strings.HasPrefix(got, "HTTP/1.1 200 OK") || !strings.Contains(got, want) {
			t.Errorf("%s: %.400s, want %q", path, got, want)
		}
		for _, header := range [][]string{
			{"Host", "evil.example:9480"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		} {
			if got := b.get(at, path, header...); !strings.HasPrefix(got, "HTTP/1.1 403 ") || strings.Contains(got, want) || strings.Contains(got, "Access-Control") {
				t.Errorf("%s with %q: %.400s", path, header, got)
			}
		}
	}
	if got := b.get(at, "/v1/filter"); !strings.Contains(got, `"rule":"a","action":"limit"`) || !strings.Contains(got, `"packets":3`) {
		t.Errorf("the filter is shown as %s", got)
	}
	for _, path := range []string{"/metrics", "/v1/scion/keys", "/v1/lb/flows", "/v1/", "/v1/reload"} {
		if got := b.get(at, path); !strings.HasPrefix(got, "HTTP/1.1 404 ") {
			t.Errorf("%s: %.200s", path, got)
		}
	}

	b.addr(netlink.AddrDel, "192.0.2.77/32")
	p.waitFor(t, "the page to look at is not there")
	b.eventually("page  NOT THERE: 192.0.2.77:9480: this host does not have the address 192.0.2.77", "status")
	b.eventually("nobody gets the page at 192.0.2.77:9480: this host does not have the address 192.0.2.77", "doctor")
	b.metric("127.0.0.1:9441", "culvert_web_up", "0")
	b.send(2, frame("198.51.100.1", 5))
	b.counted("a", 5)
	b.addr(netlink.AddrAdd, "192.0.2.77/32")
	p.waitFor(t, "the page to look at is there again")
	b.metric("127.0.0.1:9441", "culvert_web_up", "1")
	b.eventually("page  http://192.0.2.77:9480/  OPEN", "status")
	p.interrupt(t)
	if got := b.get(at, "/"); got != "" {
		t.Errorf("after the end of the process: %.200s", got)
	}
}

// TestWebTalkers looks for talkers while somebody looks at them, and while nobody does.
func TestWebTalkers(t *testing.T) {
	b := newPairsBed(t)
	runAttached(t, b.file("c.toml", allStages+"[web]\nlisten = '127.0.0.1:9480'\n"))
	const at, path = "127.0.0.1:9480", "/v1/filter/top"
	if got := b.get(at, path); !strings.HasPrefix(got, "HTTP/1.1 404 ") || !strings.Contains(got, "nobody looks at the talkers of culvert now: run 'culvert filter top'") {
		t.Errorf("without 'culvert filter top': %s", got)
	}
	top := startCulvert(t, "filter", "top", "-j", "--by", "src")
	b.eventually("", "status")
	for !strings.Contains(b.get(at, "/v1/filter"), `"top":"src"`) {
		select {
		case <-t.Context().Done():
			t.Fatal("it is not on")
		default:
		}
	}
	if got := b.get(at, path); !strings.HasPrefix(got, "HTTP/1.1 200 OK") || !strings.Contains(got, `{"router":"culvert","by":"src"`) {
		t.Errorf("with 'culvert filter top': %s", got)
	}
	_ = top
}
