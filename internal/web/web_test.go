// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"culvert/internal/api"
)

// request is one to the page at an address. local is the address of the connection, "" for 127.0.0.1.
type request struct {
	method, path, host, local string
	header                    map[string]string
}

// ask returns the answer of a page that listens at an address. Behind it is a handler that answers what programs ask for with "secret".
func ask(t *testing.T, listen string, q request) *httptest.ResponseRecorder {
	t.Helper()
	h, err := Handler(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "\"secret %s\"\n", r.URL.Path)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if q.method == "" {
		q.method = http.MethodGet
	}
	if q.local == "" {
		q.local = "127.0.0.1"
	}
	r := httptest.NewRequest(q.method, q.path, nil)
	r.Host = q.host
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	local := &net.TCPAddr{IP: net.ParseIP(q.local), Port: 9480}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
	return w
}

// TestHosts asks by names and addresses of the page, also by those of a tunnel's end, and by names that an attacker may let point to
// this machine.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		listen, host, local string
		known               bool
	}{
		{"127.0.0.1:9480", "127.0.0.1:9480", "", true},
		{"127.0.0.1:9480", "127.0.0.1", "", true},
		{"127.0.0.1:9480", "localhost:18080", "", true},
		{"127.0.0.1:9480", "LocalHost:9480", "", true},
		{"127.0.0.1:9480", "[::1]:9480", "", true},
		{"127.0.0.1:9480", "evil.example:9480", "", false},
		{"127.0.0.1:9480", "127.0.0.1.evil.example:9480", "", false},
		{"127.0.0.1:9480", "localhost.evil.example", "", false},
		{"127.0.0.1:9480", "192.0.2.1:9480", "", false},
		{"127.0.0.1:9480", "", "", false},
		{"127.0.0.1:9480", ":9480", "", false},
		{"127.0.0.1:9480", "localhost:9480:9480", "", false},
		{"127.0.0.1:9480", "<b>", "", false},
		{"192.0.2.1:9480", "192.0.2.1:9480", "192.0.2.1", true},
		{"192.0.2.1:9480", "192.0.2.2:9480", "192.0.2.1", false},
		{":9480", "192.0.2.2:9480", "192.0.2.2", true},
		{":9480", "192.0.2.1:9480", "192.0.2.2", false},
		{":9480", "[2001:db8::1]:9480", "2001:db8::1", true},
		{":9480", "evil.example:9480", "192.0.2.2", false},
		{"[fe80::1%eth0]:9480", "[fe80::1]:9480", "fe80::1", true},
		{"edge.example:9480", "Edge.example:9480", "192.0.2.2", true},
		{"edge.example:9480", "other.example:9480", "192.0.2.2", false},
	} {
		for _, path := range []string{"/", "/main.js", "/v1/status"} {
			w := ask(t, c.listen, request{path: path, host: c.host, local: c.local})
			if known := w.Code == http.StatusOK; known != c.known || !known && (w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "secret")) {
				t.Errorf("%s, host %q, %s: %d %.100s, want known: %v", c.listen, c.host, path, w.Code, w.Body, c.known)
			}
		}
	}
}

// TestOrigins has requests as browsers send them for the page itself, for links to it, and for pages of other origins.
func TestOrigins(t *testing.T) {
	const host = "127.0.0.1:9480"
	for _, c := range []struct {
		what, path string
		header     map[string]string
		served     bool
	}{
		{"a program", "/v1/status", nil, true},
		{"the address typed in", "/", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, true},
		{"the page's own script", "/main.js", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "script", "Origin": "http://" + host}, true},
		{"the page's own fetch", "/v1/status", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, true},
		{"a link elsewhere to the page", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, true},
		{"a link elsewhere to an answer", "/v1/status", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, false},
		{"a frame", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, false},
		{"a fetch from another origin", "/v1/status", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Origin": "https://evil.example"}, false},
		{"one from an old browser", "/v1/status", map[string]string{"Origin": "https://evil.example"}, false},
		{"one from a sandbox", "/v1/status", map[string]string{"Origin": "null"}, false},
		{"one that may not be read", "/v1/status", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, false},
		{"another port of this machine", "/v1/status", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Origin": "http://127.0.0.1:8000"}, false},
		{"a picture elsewhere", "/icon.svg", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, false},
		{"a word that is not known yet", "/v1/status", map[string]string{"Sec-Fetch-Site": "nearby"}, false},
	} {
		w := ask(t, host, request{path: c.path, host: host, header: c.header})
		if served := w.Code == http.StatusOK; served != c.served || !served && (w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "secret")) {
			t.Errorf("%s: %d %.100s, want served: %v", c.what, w.Code, w.Body, c.served)
		}
	}
}

// TestHeaders wants that no answer may be framed, sniffed, kept, or read by another origin, and that the page loads nothing from elsewhere.
func TestHeaders(t *testing.T) {
	for _, q := range []request{
		{path: "/"}, {path: "/main.js"}, {path: "/page.css"}, {path: "/icon.svg"}, {path: "/v1/status"}, {path: "/none"},
		{path: "/", method: http.MethodPost}, {path: "/", host: "evil.example"},
		{path: "/v1/status", header: map[string]string{"Origin": "https://evil.example"}},
	} {
		if q.host == "" {
			q.host = "localhost"
		}
		head := ask(t, "127.0.0.1:9480", q).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": policy,
		} {
			if head.Get(name) != want {
				t.Errorf("%+v: %s is %q, want %q", q, name, head.Get(name), want)
			}
		}
		for name := range head {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%+v: the answer has %s", q, name)
			}
		}
		if head.Get("Content-Type") == "" {
			t.Errorf("%+v: no type of the content", q)
		}
	}
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy has no %s", want)
		}
	}
	for _, unwanted := range []string{"unsafe", "*", "data:", "http"} {
		if strings.Contains(policy, unwanted) {
			t.Errorf("the policy has %s", unwanted)
		}
	}
}

// TestRefused has requests that the page does not answer, among them those for what only the socket shows.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/v1/status", 405},
		{"PUT", "/", 405},
		{"OPTIONS", "/v1/status", 405},
		{"GET", "/index.html", 404},
		{"GET", "/static/main.js", 404},
		{"GET", "/v1/", 404},
		{"GET", "/v1/lb/flows", 404},
		{"GET", "/v1/scion/keys", 404},
		{"GET", "/v1/filter/sets", 404},
		{"GET", "/metrics", 404},
		{"GET", "/v1/reload", 404},
		{"GET", "/v1/../v1/status", 404},
		{"GET", "/%3Cscript%3E", 404},
		{"GET", "/" + strings.Repeat("a", 4000), 404},
	} {
		w := ask(t, "127.0.0.1:9480", request{method: c.method, path: c.path, host: "localhost"})
		if w.Code != c.status || strings.Contains(w.Body.String(), "secret") || w.Body.Len() > 300 || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%s %.50s: %d %.300s, want %d and one line", c.method, c.path, w.Code, w.Body, c.status)
		}
	}
}

// TestPathsOfTheInterface wants that what the page asks for is there.
func TestPathsOfTheInterface(t *testing.T) {
	known := make(map[string]bool)
	for _, p := range api.Paths() {
		known[p.Path] = true
	}
	script, err := static.ReadFile("static/main.js")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(map[string]bool)
	for _, m := range regexp.MustCompile(`"(/v1/[a-z/]*)"`).FindAllStringSubmatch(string(script), -1) {
		asked[m[1]] = true
	}
	for _, p := range apiPaths {
		if !known[p] || !asked[p] {
			t.Errorf("%s: in the interface: %v, asked for by the page: %v", p, known[p], asked[p])
		}
		delete(asked, p)
	}
	for p := range asked {
		t.Errorf("the page asks for %s, and does not get it", p)
	}
}

// TestNothingFromElsewhere wants no address of another host in the page, no text that is taken as HTML, and nothing inline, which the
// policy refuses.
func TestNothingFromElsewhere(t *testing.T) {
	entries, err := static.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), `xmlns="http://www.w3.org/2000/svg"`, "")
		for _, unwanted := range []string{
			"http:", "https:", "url(", "@import", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
			"style=", "onclick=", "onload=", "javascript:", "<style", "setTimeout(\"",
		} {
			if strings.Contains(text, unwanted) {
				t.Errorf("%s has %q", e.Name(), unwanted)
			}
		}
		if !strings.Contains(strings.Join(strings.SplitN(text, "\n", 4), "\n"), "SPDX-License-Identifier: Apache-2.0") {
			t.Errorf("%s does not name its licence", e.Name())
		}
		if n := strings.Count(text, "\n"); n > 500 {
			t.Errorf("%s has %d lines: split it", e.Name(), n)
		}
	}
}

// TestServe has a page served, with more clients than are served at a time, of which some send nothing.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h, err := Handler(l.Addr().String(), http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Serve(ctx, l, h) }()
	for range 2 * api.MostConnections {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Get("http://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "<title>culvert</title>") {
		t.Errorf("%v %d %.200s", err, answer.StatusCode, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestWrongAddress wants an error for what is no address.
func TestWrongAddress(t *testing.T) {
	if _, err := Handler("9480", nil); err == nil {
		t.Error("no error")
	}
}
