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

	"culvert/internal/api"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
	"culvert/internal/host/unixsock"
	"culvert/internal/httpserve"
	"culvert/internal/show/usage"
)

// Request asks a process to read its configuration again.
type Request struct {
	// DryRun asks for the changes, and changes nothing.
	DryRun bool
	// Confirm is how long to wait for a request with Keep before the configuration goes back, 0 for no need of one.
	Confirm time.Duration
	// Keep keeps the configuration of a reload with Confirm, and does nothing else.
	Keep bool

	by string // who asks
	// set are the documents of a cluster to run instead of those that run, nil for these.
	set *lastgood.Set
}

// Serving says what a process serves.
type Serving struct {
	Name  string `json:"name"`
	NetNS uint32 `json:"netns"`
	PID   int    `json:"pid"`
	File  string `json:"file"`
}

// call is a request on its way to the goroutine of run.
type call struct {
	request Request
	done    chan struct{}
	result  *api.Reloaded
	err     error
}

// answer ends a call.
func (c *call) answer(r *api.Reloaded, err error) {
	c.result, c.err = r, err
	close(c.done)
}

// servingPath is a path of the control socket that is not of the interface for programs.
const servingPath = "/serving"

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
func (p *process) serveControl(ending context.Context) *sync.WaitGroup {
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
	source := p.source()
	busy := make(chan struct{}, 1)
	reload := func(r Request) (*api.Reloaded, error) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
			return p.ask(ending, r)
		default:
			return nil, errReloading
		}
	}
	source.Reload = func(_ context.Context, q api.Reload, by string) (*api.Reloaded, error) {
		r, err := requested(q)
		if err != nil {
			return nil, err
		}
		r.by = by
		answer, err := reload(r)
		if err != nil {
			return nil, refusedReload(err)
		}
		return answer, nil
	}
	all := api.NewControl(source)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == servingPath && r.Method == http.MethodGet:
			writeJSON(w, http.StatusOK, serving)
		default:
			all.ServeHTTP(w, r)
		}
	})
	work.Go(func() {
		defer l.Remove()
		defer all.Wait()
		if err := httpserve.ServeControl(ending, l, api.MostControls, h, "control"); err != nil {
			p.fail(err)
		}
	})
	return &work
}

var errReloading = errors.New("another reload is under way: try again when it has ended")

// errEnding says that a request comes too late.
var errEnding = errors.New("the process is about to end")

// requested returns the request of a program.
func requested(q api.Reload) (Request, error) {
	r := Request{DryRun: q.DryRun, Confirm: time.Duration(q.Confirm), Keep: q.Keep}
	switch {
	case r.Keep && (r.DryRun || r.Confirm != 0):
		return r, usage.Error(errors.New("keep goes alone"))
	case r.DryRun && r.Confirm != 0:
		return r, usage.Error(errors.New("dry_run changes nothing, so there is nothing to confirm: leave one of them out"))
	case r.Confirm < 0:
		return r, usage.Error(errors.New("confirm needs a time of more than 0"))
	}
	return r, nil
}

// refusedReload returns the answer to a reload that was refused.
func refusedReload(err error) error {
	var all []error
	for _, one := range config.Sorted(err) {
		all = append(all, withPosition(one))
	}
	answer := api.Error{Error: strings.ReplaceAll(err.Error(), "\n", "; "), Errors: checkedErrors(all)}
	return &api.RefusedError{Status: statusOfReload(err), Answer: answer}
}

func statusOfReload(err error) int {
	switch {
	case errors.Is(err, errReloading):
		return http.StatusConflict
	case errors.Is(err, errEnding):
		return http.StatusServiceUnavailable
	}
	return http.StatusUnprocessableEntity
}

// ask passes a request to the goroutine of run and waits for its answer.
func (p *process) ask(ctx context.Context, request Request) (*api.Reloaded, error) {
	c := &call{request: request, done: make(chan struct{})}
	select {
	case p.calls <- c:
	case <-ctx.Done():
		return nil, errEnding
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return nil, errEnding
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client that has gone needs no answer
}

// rootOnly is the mode of sockets that only root may use.
const rootOnly = 0o600
