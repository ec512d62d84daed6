// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"culvert/internal/edit"
	"culvert/internal/show/planes"
	"culvert/internal/show/usage"
)

// Error is the answer to a request that has no other.
type Error struct {
	// Error says in one line what is wrong.
	Error string `json:"error"`
	// Errors are all errors of a configuration that is refused, with their places.
	Errors []Place `json:"errors,omitempty"`
}

// Place is an error of a configuration with its place. Line and column are left out where they are not known.
type Place struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Error  string `json:"error"`
}

// Reload is a request to read the configuration again.
type Reload struct {
	// DryRun asks for the changes, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Confirm is within what time a request with keep has to follow, as 90s. Otherwise the configuration before comes back.
	Confirm edit.Time `json:"confirm,omitempty"`
	// Keep keeps what a reload with confirm has brought into force, and does nothing else.
	Keep bool `json:"keep,omitempty"`
}

// Reloaded is what a reload has done.
type Reloaded struct {
	// Name is that of the data plane, and File the path of the configuration.
	Name string `json:"name"`
	File string `json:"file"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run"`
	// Changes has a line for each thing that differs from what was in force.
	Changes []string `json:"changes"`
	// Notes keep nothing from working.
	Notes []string `json:"notes"`
	// NewProgram tells whether a new program was loaded. Otherwise the maps of the one that runs were changed.
	NewProgram bool `json:"new_program"`
	// Until is when the former configuration comes back unless this one is kept.
	Until *time.Time `json:"until,omitempty"`
	// Milliseconds is how long the reload took.
	Milliseconds int64 `json:"milliseconds"`
}

// RefusedError is an error with an answer of its own.
type RefusedError struct {
	Status int
	Answer Error
}

func (e *RefusedError) Error() string { return e.Answer.Error }

// refusal returns the status and the answer for an error.
func refusal(err error) (int, Error) {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Status, refused.Answer
	}
	text := strings.TrimPrefix(err.Error(), "usage: ")
	return statusOf(err), Error{Error: strings.ReplaceAll(text, "\n", "; ")}
}

// statusOf returns the status of an answer that is an error.
func statusOf(err error) int {
	var absent *planes.AbsentError
	switch {
	case isRequestError(err), usage.Is(err):
		return http.StatusBadRequest
	case errors.As(err, &absent):
		return http.StatusNotFound
	case errors.Is(err, errBusy), errors.Is(err, errSlow):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
