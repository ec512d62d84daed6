// SPDX-License-Identifier: Apache-2.0

// Package web serves a page that shows what a data plane does. The page asks for the same JSON as programs do (internal/api), and
// nothing can be changed by it. It has no password. Whoever reaches the address may look, but no page of another origin that a
// browser has open: such a page cannot read an answer, nor include one.
package web

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"culvert/internal/api"
	"culvert/internal/httpserve"
)

//go:embed static
var static embed.FS

// apiPaths are the paths of internal/api that the page needs. The others are left to the socket, where the kernel knows who asks.
var apiPaths = []string{"/v1/filter", "/v1/filter/top", "/v1/lb", "/v1/reasons", "/v1/route", "/v1/status", "/v1/version"}

// kinds are the types of the files' contents, by extension. Those of the host's tables do not matter.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// policy lets the page load its own files and nothing else, and lets nobody frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// sendTime is how long a client may take to read a file of the page.
const sendTime = 5 * time.Second

// page is a handler of requests.
type page struct {
	api   http.Handler
	host  string // of the address of the configuration
	files map[string]file
}

type file struct {
	kind string
	text []byte
}

// Handler serves the page, for an address as in the configuration, with the answers of a handler of internal/api.
func Handler(address string, answers http.Handler) (http.Handler, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p := &page{api: answers, host: host, files: make(map[string]file)}
	entries, err := fs.ReadDir(static, "static")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, err
		}
		p.files["/"+e.Name()] = file{kinds[path.Ext(e.Name())], text}
	}
	p.files["/"] = p.files["/index.html"]
	delete(p.files, "/index.html")
	return p, nil
}

// Serve serves the page on l until ctx ends, and returns nil then.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return httpserve.ServeFew(ctx, l, api.MostConnections, h, "the page")
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, fmt.Sprintf("%.20q: this page only shows: use GET or HEAD", r.Method))
		return
	}
	if why := p.foreign(r); why != "" {
		refuse(w, http.StatusForbidden, why)
		return
	}
	if slices.Contains(apiPaths, r.URL.Path) {
		p.api.ServeHTTP(w, r)
		return
	}
	f, ok := p.files[r.URL.Path]
	if !ok {
		refuse(w, http.StatusNotFound, fmt.Sprintf("%.100q is no path here: / is the page", r.URL.Path))
		return
	}
	send(w, http.StatusOK, f.kind, f.text)
}

// foreign says why a request is not one of the page itself, or of a program, "" if it is.
func (p *page) foreign(r *http.Request) string {
	if !p.knows(r) {
		return fmt.Sprintf("%.100q is no address of this page: use localhost, or the address that it listens at", r.Host)
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "pages of another origin get nothing here"
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	// A link on another page may lead to this one: the page that is shown then has nothing that the other one could read.
	if r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return ""
	}
	return "pages of another origin get nothing here"
}

// knows tells whether the host that the client has asked for is this one. A name that an attacker has let point to this machine (DNS
// rebinding) is not. The port does not matter: a tunnel may have another one at its other end.
func (p *page) knows(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") || p.host != "" && strings.EqualFold(host, p.host) {
		return true
	}
	asked, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	asked = asked.WithZone("").Unmap()
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return asked.IsLoopback() || local != nil && asked == local.AddrPort().Addr().WithZone("").Unmap()
}

func refuse(w http.ResponseWriter, status int, text string) {
	b, err := json.Marshal(api.Error{Error: text})
	if err != nil { // a string has none
		return
	}
	send(w, status, "application/json", append(b, '\n'))
}

// send writes an answer. A client that reads too slowly gets a part of it.
func send(w http.ResponseWriter, status int, kind string, text []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime)) // not there in tests
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client that has gone needs no answer
}
