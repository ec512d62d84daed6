// SPDX-License-Identifier: Apache-2.0

// Package httpserve serves HTTP so that clients who are slow, or never ask, cost little and not for long.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Limits of a connection. A profile, which is the slowest answer there is, has to fit into writeTimeout.
const (
	writeTimeout   = 2 * time.Minute
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// requestTimeout is how long a request may take to arrive, its header and its body alike. Tests make it shorter.
var requestTimeout = 10 * time.Second

// Serve answers on l until ctx ends, which is no error. What names the service in errors.
func Serve(ctx context.Context, l net.Listener, h http.Handler, what string) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s on %s: %w", what, l.Addr(), err)
	}
	return nil
}
