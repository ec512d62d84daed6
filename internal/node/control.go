// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"culvert/internal/config"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
	"culvert/internal/host/unixsock"
	"culvert/internal/httpserve"
)

// Request asks a process to read its configuration again.
type Request struct {
	// DryRun asks for the changes, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Confirm is how long to wait for a request with Keep before the configuration goes back, 0 for no need of one.
	Confirm time.Duration `json:"confirm,omitempty"`
	// Keep keeps the configuration of a reload with Confirm, and does nothing else.
	Keep bool `json:"keep,omitempty"`
}

// Reloaded is the answer to a request that was not refused.
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

// Serving says what a process serves.
type Serving struct {
	Name  string `json:"name"`
	NetNS uint32 `json:"netns"`
	PID   int    `json:"pid"`
	File  string `json:"file"`
}

// refusal is the answer to a request that was refused.
type refusal struct {
	Errors []checkedError `json:"errors"`
}

func refused(err error) refusal {
	var all []error
	for _, one := range config.Sorted(err) {
		all = append(all, withPosition(one))
	}
	return refusal{checkedErrors(all)}
}

// call is a request on its way to the goroutine of run.
type call struct {
	request Request
	done    chan struct{}
	result  *Reloaded
	err     error
}

// answer ends a call.
func (c *call) answer(r *Reloaded, err error) {
	c.result, c.err = r, err
	close(c.done)
}

// Paths of the control socket's HTTP interface.
const (
	reloadPath  = "/reload"
	servingPath = "/serving"
)

// socketPaths returns the paths that a socket of a data plane may have: /run/culvert/NAME.sock, or NAME@INODE.sock if a process of
// another network namespace, where data planes may have the same names, has that. .sock is the extension.
func socketPaths(netns uint32, name, extension string) []string {
	file := strings.ReplaceAll(url.PathEscape(name), "@", "%40")
	// The control socket of x.show would have the path of the socket that shows x.
	if before, ends := strings.CutSuffix(file, showPart); ends {
		file = before + "%2E" + showPart[1:]
	}
	return []string{
		filepath.Join(trust.RunDir, file+extension),
		filepath.Join(trust.RunDir, fmt.Sprintf("%s@%d%s", file, netns, extension)),
	}
}

// Extensions of sockets: that of all, of which only control sockets have nothing more, and that of the sockets that show.
const (
	showPart      = ".show"
	showExtension = showPart + unixsock.Extension
)

// serveControl answers requests on the control socket until ctx ends. A process without it works, and says so.
func (p *process) serveControl(ctx context.Context) *sync.WaitGroup {
	var work sync.WaitGroup
	here, err := pins.Here()
	if err != nil {
		p.log.Warn("'culvert reload' does not find this process", "err", err)
		return &work
	}
	serving := Serving{Name: p.up.name, NetNS: here.Inode, PID: os.Getpid(), File: absolute(p.up.file.Path)}
	l, err := unixsock.Listen(socketPaths(here.Inode, p.up.name, unixsock.Extension), func(path string) error { return os.Chmod(path, rootOnly) })
	if err != nil {
		p.log.Warn("'culvert reload' does not find this process; SIGHUP has it read its configuration again", "err", err)
		return &work
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+servingPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, serving) })
	busy := make(chan struct{}, 1)
	mux.HandleFunc("POST "+reloadPath, func(w http.ResponseWriter, r *http.Request) {
		var request Request
		decode := json.NewDecoder(r.Body)
		decode.DisallowUnknownFields()
		if err := decode.Decode(&request); err != nil {
			writeJSON(w, http.StatusBadRequest, refused(fmt.Errorf("reading the request: %w", err)))
			return
		}
		// Only the client bounds how long a reload takes.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			writeJSON(w, http.StatusInternalServerError, refused(fmt.Errorf("waiting for the reload: %w", err)))
			return
		}
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			writeJSON(w, http.StatusConflict, refused(errors.New("another reload is under way: try again when it has ended")))
			return
		}
		p.ask(ctx, w, request)
	})
	work.Go(func() {
		defer l.Remove()
		if err := httpserve.Serve(ctx, l, mux, "control"); err != nil {
			p.fail(err)
		}
	})
	return &work
}

// ask passes a request to the goroutine of run and writes its answer.
func (p *process) ask(ctx context.Context, w http.ResponseWriter, request Request) {
	c := &call{request: request, done: make(chan struct{})}
	ending := refused(errors.New("the process is about to end"))
	select {
	case p.calls <- c:
	case <-ctx.Done():
		writeJSON(w, http.StatusServiceUnavailable, ending)
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		writeJSON(w, http.StatusServiceUnavailable, ending)
		return
	}
	if c.err == nil {
		writeJSON(w, http.StatusOK, c.result)
		return
	}
	writeJSON(w, http.StatusUnprocessableEntity, refused(c.err))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client that has gone needs no answer
}

// rootOnly is the mode of sockets that only root may use.
const rootOnly = 0o600
