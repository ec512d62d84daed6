// SPDX-License-Identifier: Apache-2.0

// Package events tells programs what happens in a process, from what it logs.
package events

import (
	"sync"
	"time"
)

// Event is what has happened.
type Event struct {
	Time time.Time `json:"time"`
	// Event is its kind, as in Kinds; log if it has none of its own, and lost for events that the reader was too slow for.
	Event string `json:"event"`
	// Level is info, warn or error.
	Level string `json:"level"`
	// Text is the message in the log.
	Text string `json:"text"`
	// Fields are what the log has beside the message: texts, numbers, lists of texts.
	Fields map[string]any `json:"fields,omitempty"`
	// Lost is how many events are missing here. Only events of kind lost have it.
	Lost uint64 `json:"lost,omitempty"`
}

// Levels of events.
const (
	LevelInfo  = "info"
	LevelWarn  = "warn"
	LevelError = "error"
)

// Kinds of events that are no messages with a kind of their own.
const (
	KindLog  = "log"
	KindLost = "lost"
)

// waiting is how many events may wait for a reader.
const waiting = 256

// Hub hands events on to readers. Its methods may be called from any goroutine, and none of them waits for a reader.
type Hub struct {
	mu      sync.Mutex
	readers map[*Reader]bool
}

// NewHub returns a hub without readers.
func NewHub() *Hub { return &Hub{readers: make(map[*Reader]bool)} }

// Reader gets the events from its beginning on.
type Reader struct {
	hub    *Hub
	events chan Event
	lost   uint64 // since the last event that had room
}

// Read returns a reader. The caller closes it.
func (h *Hub) Read() *Reader {
	r := &Reader{hub: h, events: make(chan Event, waiting)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[r] = true
	return r
}

// Close ends a reader.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	delete(r.hub.readers, r)
}

// Events returns the channel of a reader's events.
func (r *Reader) Events() <-chan Event { return r.events }

// Emit hands an event on. A reader without room loses it, and is told how many it has lost once it has room again.
func (h *Hub) Emit(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		if r.lost > 0 && len(r.events) < waiting-1 {
			r.events <- Event{Time: e.Time, Event: KindLost, Level: LevelWarn, Text: "events were lost: they came faster than they were read", Lost: r.lost}
			r.lost = 0
		}
		select {
		case r.events <- e:
		default:
			r.lost++
		}
	}
}

// Followed tells whether there are readers.
func (h *Hub) Followed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers) > 0
}
