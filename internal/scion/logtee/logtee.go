// SPDX-License-Identifier: Apache-2.0

// Package logtee has programs see what the SCION router logs by the library of the reference.
package logtee

import (
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logged gets the messages of level info and above that the router logs, unless it is nil. It is set before a router starts.
var Logged func(level slog.Level, text string, fields map[string]any)

// Tee has Logged get what the log gets.
func Tee() {
	if Logged == nil {
		return
	}
	both := func(log zapcore.Core) zapcore.Core { return zapcore.NewTee(log, &teeCore{logged: Logged}) }
	zap.ReplaceGlobals(zap.L().WithOptions(zap.WrapCore(both)))
}

// teeCore implements zapcore.Core.
type teeCore struct {
	logged func(slog.Level, string, map[string]any)
	fields []zapcore.Field
}

// Enabled implements zapcore.Core.
func (*teeCore) Enabled(l zapcore.Level) bool { return l >= zapcore.InfoLevel }

// With implements zapcore.Core.
func (c *teeCore) With(fields []zapcore.Field) zapcore.Core {
	return &teeCore{c.logged, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check implements zapcore.Core.
func (c *teeCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *teeCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	all := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(all)
	}
	for _, f := range fields {
		f.AddTo(all)
	}
	level := slog.LevelInfo
	switch {
	case e.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	case e.Level >= zapcore.WarnLevel:
		level = slog.LevelWarn
	}
	c.logged(level, e.Message, all.Fields)
	return nil
}

// Sync implements zapcore.Core.
func (*teeCore) Sync() error { return nil }
