// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// again is after how long the same line of etcd's is logged once more.
const again = time.Minute

// zapTo returns a logger for etcd: its warnings and errors go to a slog.Logger, the same line once a minute at most. Nothing does once
// ended is set: etcd takes each connection that it closes itself for an error.
func zapTo(log *slog.Logger, ended *atomic.Bool) *zap.Logger {
	return zap.New(&core{log: log, last: new(lastLines), ended: ended})
}

// core is a zapcore.Core.
type core struct {
	log    *slog.Logger
	fields []zapcore.Field
	last   *lastLines
	ended  *atomic.Bool
}

// lastLines knows when lines were logged last.
type lastLines struct {
	mu sync.Mutex
	at map[string]time.Time
}

// usual are warnings of etcd's about what is as it should be here, or of which another line tells.
var usual = []string{
	"simple token is not cryptographically signed", // who has a certificate needs no token
	"Running http and grpc server on single port",
	"Failed to detect schema version",                       // at the first start
	"failed to reach the peer URL", "failed to get version", // "peer became inactive"
	"failed to register grpc metrics",                                 // the SCION router has registered metrics of the same names
	"failed to apply request", "ignored grant role request to a user", // whoever asked gets the error
	"request stats", // a slow machine; etcd_server_slow_apply_total counts
	"TCP streaming connection with remote peer", // "peer became inactive"
}

// Enabled implements zapcore.Core.
func (c *core) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	all := append(append([]zapcore.Field(nil), c.fields...), fields...)
	return &core{c.log, all, c.last, c.ended}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, c)
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if c.ended.Load() {
		return nil
	}
	for _, u := range usual {
		if strings.Contains(e.Message, u) {
			return nil
		}
	}
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range append(append([]zapcore.Field(nil), c.fields...), fields...) {
		f.AddTo(encoder)
	}
	// Errors have numbers of ports, which differ each time.
	line := e.Message
	for _, key := range []string{"remote-peer-id", "remote-addr", "user-name"} {
		of, _ := encoder.Fields[key].(string)
		if host, _, err := net.SplitHostPort(of); err == nil {
			of = host
		}
		line += "\n" + of
	}
	if !c.last.new(line) {
		return nil
	}
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	var args []any
	for _, key := range []string{"error", "remote-addr", "remote-peer-id", "user-name", "took", "alarm"} {
		if v, there := encoder.Fields[key]; there {
			args = append(args, key, v)
		}
	}
	c.log.Log(context.Background(), level, "etcd: "+e.Message, args...)
	return nil
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// most bounds how many lines are remembered.
const most = 1000

// new tells whether a line was not logged within the last minute, and notes that it is logged now.
func (l *lastLines) new(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, seen := l.at[line]; seen && now.Sub(at) < again {
		return false
	}
	if l.at == nil || len(l.at) > most {
		l.at = make(map[string]time.Time)
	}
	l.at[line] = now
	return true
}
