// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/config"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
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

// socketPath returns the path of the control socket of a data plane: /run/culvert/NAME.sock for the host's own network
// namespace, and NAME@INODE.sock for others, where data planes may have the same names.
func socketPath(netns uint32, name string) string {
	file := strings.ReplaceAll(url.PathEscape(name), "@", "%40")
	var host unix.Stat_t
	if err := unix.Stat("/proc/1/ns/net", &host); err != nil || uint32(host.Ino) != netns {
		file += fmt.Sprintf("@%d", netns)
	}
	return filepath.Join(trust.RunDir, file+".sock")
}

// serveControl answers requests on the control socket until ctx ends. A process without it works, and says so.
func (p *process) serveControl(ctx context.Context) *sync.WaitGroup {
	var work sync.WaitGroup
	here, err := pins.Here()
	if err != nil {
		p.log.Warn("'culvert reload' does not find this process", "err", err)
		return &work
	}
	serving := Serving{Name: p.up.name, NetNS: here.Inode, PID: os.Getpid(), File: p.up.file.Path}
	path := socketPath(here.Inode, p.up.name)
	l, err := listenControl(path)
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
		defer removeSocket(l, path)
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

// listenControl makes a socket at path that only root may use, in place of one that a killed process has left.
func listenControl(path string) (net.Listener, error) {
	if err := trust.MakeDir(trust.RunDir); err != nil {
		return nil, err
	}
	// The name comes when nobody else can connect any more.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(fresh)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = os.Remove(fresh)
		l.Close()
		return nil, err
	}
	return l, nil
}

// removeSocket removes the control socket unless another process has replaced it.
func removeSocket(l net.Listener, path string) {
	if c, err := net.Dial("unix", path); err == nil { // l is closed, so another process answers
		c.Close()
		return
	}
	_ = os.Remove(path)
	l.Close()
}
