// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Level is that of messages which are events and not in the log.
const Level = slog.LevelDebug - 4

// Handler returns a handler that hands messages on to a log, and those of level info and above to the hub as well. Messages of level
// Level go to the hub alone.
func Handler(log slog.Handler, hub *Hub) slog.Handler { return &handler{log: log, hub: hub} }

type handler struct {
	log   slog.Handler
	hub   *Hub
	attrs []slog.Attr
	group string
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || level == Level || h.log.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo || r.Level == Level {
		e := Event{Time: r.Time, Event: kindOf(r.Message), Level: levelOf(r.Level), Text: r.Message}
		add := func(a slog.Attr) bool {
			if e.Fields == nil {
				e.Fields = make(map[string]any)
			}
			e.Fields[a.Key] = plain(a.Value)
			return true
		}
		for _, a := range h.attrs {
			add(a)
		}
		r.Attrs(func(a slog.Attr) bool {
			a.Key = h.group + a.Key
			return add(a)
		})
		h.hub.Emit(e)
	}
	if r.Level == Level || !h.log.Enabled(ctx, r.Level) {
		return nil
	}
	return h.log.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.log, next.attrs = h.log.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		next.attrs = append(next.attrs, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	next := *h
	next.log, next.group = h.log.WithGroup(name), h.group+name+"."
	return &next
}

// Message hands a message of another log on.
func (h *Hub) Message(level slog.Level, text string, fields map[string]any) {
	e := Event{Time: time.Now(), Event: kindOf(text), Level: levelOf(level), Text: text}
	if len(fields) > 0 {
		e.Fields = make(map[string]any)
	}
	for name, v := range fields {
		e.Fields[name] = Plain(v)
	}
	h.Emit(e)
}

func levelOf(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return LevelError
	case l >= slog.LevelWarn:
		return LevelWarn
	}
	return LevelInfo
}

// plain returns a value as JSON has it: a text, a number, true or false, or a list of texts.
func plain(v slog.Value) any {
	v = v.Resolve()
	switch v.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindString:
		return v.Any()
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	}
	return Plain(v.Any())
}

// Plain returns a value as a field of an event.
func Plain(v any) any {
	switch v := v.(type) {
	case nil, bool, int, int64, uint64, uint32, string:
		return v
	case []string:
		return append([]string{}, v...)
	case error:
		return v.Error()
	}
	return fmt.Sprint(v)
}
