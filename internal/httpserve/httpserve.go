// SPDX-License-Identifier: Apache-2.0

// Package httpserve serves HTTP with limits, so that clients that are slow or send no request take few resources.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// Limits of a connection. writeTimeout has to be longer than the slowest answer, which is a profile.
const (
	writeTimeout   = 2 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10

	maxLocalHeaderBytes = 8 << 10
	// endTimeout is how long requests may take that are being carried out at the end.
	endTimeout = 10 * time.Second
)

// requestTimeout is how long a request may take to arrive, header and body together. It is a variable for tests.
var requestTimeout = 10 * time.Second

// localTimeout is requestTimeout for ServeFew. It is a variable for tests.
var localTimeout = 2 * time.Second

// Listen is Bind with errors that do not name the address, for the caller does, and that say what to do.
func Listen(address string, own ...net.Listener) (net.Listener, error) {
	l, err := Bind(address, own...)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: stop the process that has it ('ss -tlnp') or choose another port", unix.EADDRINUSE)
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	return l, err
}

// Serve answers requests on l until ctx ends, and returns nil then. what names the service in errors.
func Serve(ctx context.Context, l net.Listener, h http.Handler, what string) error {
	return serve(ctx, l, what, &http.Server{
		Handler:           h,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	})
}

// ServeFew is Serve for programs of the same machine, which are never slow for a good reason. At most so many connections are
// served at a time, each for one request, so that they leave each other the place. The others wait in the kernel.
func ServeFew(ctx context.Context, l net.Listener, most int, h http.Handler, what string) error {
	return serve(ctx, netutil.LimitListener(l, most), what, few(h))
}

// ServeControl is ServeFew, but when ctx ends, requests that are being carried out are answered. Their contexts
// end with ctx.
func ServeControl(ctx context.Context, l net.Listener, most int, h http.Handler, what string) error {
	server, ended := few(h), make(chan struct{})
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() {
		defer close(ended)
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = server.Shutdown(bounded)
		_ = server.Close()
	}()
	err := serve(context.WithoutCancel(ctx), netutil.LimitListener(l, most), what, server)
	if err == nil {
		<-ended
	}
	return err
}

func few(h http.Handler) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: localTimeout,
		ReadTimeout:       localTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxLocalHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // any client could fill the log
	}
	server.SetKeepAlivesEnabled(false)
	return server
}

func serve(ctx context.Context, l net.Listener, what string, server *http.Server) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s on %s: %w", what, l.Addr(), err)
	}
	return nil
}
