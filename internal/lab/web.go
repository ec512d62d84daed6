// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"culvert/internal/httpserve"
)

// headerTimeout is how long a client may take to send its header.
const headerTimeout = 10 * time.Second

// ServeWeb runs the web server of the topology lb until ctx ends. It answers
//
//	GET /           with its name
//	GET /bytes/N    with N bytes, each of which depends on its offset only
//	POST /          with its name, the number of bytes received and their SHA-256
//	GET /health     with the status that PUT /health has set, by default 200
func ServeWeb(ctx context.Context, listen, name string) error {
	listener, err := httpserve.Listen(listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", listen, err)
	}
	server := &http.Server{Handler: webHandler(name), ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listen, err)
	}
	return nil
}

func webHandler(name string) http.Handler {
	var status atomic.Int64
	status.Store(http.StatusOK)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		if err != nil {
			return // the client has closed the connection
		}
		fmt.Fprintf(w, "%s %d %x\n", name, n, sum.Sum(nil))
	})
	mux.HandleFunc("GET /bytes/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
		if err != nil || n < 0 {
			http.Error(w, "give a number of bytes", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, &WebBytes{}, n) // fails if the client has closed the connection
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) })
	mux.HandleFunc("PUT /health", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(io.LimitReader(r.Body, 4))
		code, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || convErr != nil || code < 200 || code > 599 {
			http.Error(w, "give a status from 200 to 599", http.StatusBadRequest)
			return
		}
		status.Store(int64(code))
	})
	return mux
}

// WebBytes is a reader of the bytes that GET /bytes/N answers with. It has no end.
type WebBytes struct{ offset uint64 }

// Read fills p.
func (b *WebBytes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b.offset * 2654435761 >> 24)
		b.offset++
	}
	return len(p), nil
}
