// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/api"
	"culvert/internal/config"
	"culvert/internal/edit"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
	"culvert/internal/host/unixsock"
)

// Which says which process a command is about: that of the data plane On or of the configuration File, or if both are empty,
// the only one of this network namespace.
type Which struct{ On, File string }

// Reload asks a process to read its configuration again. An error with several lines is a config.Errors.
func Reload(ctx context.Context, which Which, r Request) (*api.Reloaded, error) {
	path, err := find(ctx, which)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(api.Reload{DryRun: r.DryRun, Confirm: edit.Time(r.Confirm), Keep: r.Keep})
	if err != nil {
		return nil, err
	}
	answer := new(api.Reloaded)
	if err := asked(ctx, path, http.MethodPost, api.ReloadPath, answerTime, body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// serving is a process with its control socket.
type serving struct {
	Serving
	path string
}

// find returns the control socket of a process.
func find(ctx context.Context, which Which) (path string, err error) {
	all, silent := processes(ctx)
	var fit []serving
	var names, files []string
	for _, s := range all {
		names, files = append(names, s.Name), append(files, s.File)
		if (which.On == "" || s.Name == which.On) && (which.File == "" || sameFile(s.File, which.File)) {
			fit = append(fit, s)
		}
	}
	switch {
	case len(fit) == 1:
		return fit[0].path, nil
	case silent != nil:
		return "", silent // it may be the one
	case len(fit) > 1:
		return "", fmt.Errorf("several processes serve data planes here, %s: name one with --on", strings.Join(names, ", "))
	case which.File != "":
		return "", fmt.Errorf("no process of this network namespace runs %s: start it with 'culvert run -c %[1]s'%s", which.File, others("have", files))
	case which.On != "":
		return "", fmt.Errorf("no process of this network namespace serves data plane %s: start it with the FILE of %[1]s: 'culvert run -c FILE'%s",
			which.On, others("serve", names))
	}
	return "", errors.New("no process of this network namespace serves a data plane, so that none has a configuration to read again: start one: " +
		"'culvert run -c FILE' (without -c it reads /etc/culvert/culvert.toml), or 'systemctl start culvert'")
}

// others says what the processes have that are not meant.
func others(verb string, what []string) string {
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf("; those that run %s %s", verb, strings.Join(what, ", "))
}

// sameFile tells whether two paths name one file as far as their texts tell: the process may run elsewhere.
func sameFile(a, b string) bool {
	absolute, err := filepath.Abs(b)
	return a == b || err == nil && a == absolute
}

// servedFile returns the configuration of a process that serves a data plane of this network namespace, "" if it does not answer.
func servedFile(pid int) string {
	all, _ := processes(context.Background()) // without an answer the file is not known
	for _, s := range all {
		if s.PID == pid {
			return s.File
		}
	}
	return ""
}

// processes returns the processes of this network namespace that answer on their control sockets. The error is about one that
// does not.
func processes(ctx context.Context) (all []serving, err error) {
	here, err := pins.Here()
	if err != nil {
		return nil, err
	}
	if err := trust.Dir(trust.RunDir); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(trust.RunDir, "*"+unixsock.Extension))
	if err != nil {
		return nil, err
	}
	var silent error
	for _, path := range paths {
		if strings.HasSuffix(path, showExtension) || !ofSpace(path, here.Inode) {
			continue
		}
		s := serving{path: path}
		err := asked(ctx, path, http.MethodGet, servingPath, servingTime, nil, &s.Serving)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT): // of a process that was killed, or has just ended
		case err != nil:
			silent = err
		case s.NetNS == here.Inode:
			all = append(all, s)
		}
	}
	return all, silent
}

// ofSpace tells whether a control socket may be of a process in a network namespace, by its path.
func ofSpace(path string, netns uint32) bool {
	_, inode, other := strings.Cut(strings.TrimSuffix(filepath.Base(path), unixsock.Extension), "@")
	return !other || inode == fmt.Sprint(netns)
}

// servingTime bounds how long a process may take to say what it serves.
const servingTime = 5 * time.Second

// answerTime bounds how long a process may take to answer. A reload may read sets with millions of entries.
const answerTime = 10 * time.Minute

// asked sends a request to a process, which has so much time, and stores its answer.
func asked(ctx context.Context, path, method, to string, within time.Duration, body []byte, answer any) error {
	client := http.Client{Timeout: within, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://culvert"+to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set(api.WordsHeader, api.FlagWords)
	response, err := client.Do(request)
	if err != nil {
		var op *net.OpError
		var timeout interface{ Timeout() bool }
		switch {
		case errors.Is(err, fs.ErrPermission):
			err = errors.New("only root may: run as root")
		case errors.As(err, &op):
			err = op.Err
		case errors.As(err, &timeout) && timeout.Timeout():
			err = &lateError{within}
		}
		return fmt.Errorf("asking the process at %s: %w", path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer of the process at %s: %w", path, err)
	}
	if response.StatusCode == http.StatusOK {
		return json.Unmarshal(text, answer)
	}
	return answered(path, response, text)
}

// lateError says that a process has not answered in time.
type lateError struct{ within time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("no answer in %v: see its log", e.within) }

// answered returns the error that a process has answered.
func answered(path string, response *http.Response, text []byte) error {
	var r api.Error
	if json.Unmarshal(text, &r) != nil || len(r.Errors) == 0 && r.Error == "" {
		return &refusedError{response.StatusCode, false, fmt.Errorf("the process at %s answered %s", path, response.Status)}
	}
	if len(r.Errors) == 0 {
		return &refusedError{response.StatusCode, true, errors.New(r.Error)}
	}
	var errs config.Errors
	for _, e := range r.Errors {
		errs.Add(placed(e))
	}
	return errs.Err()
}

// refusedError is an error that a process has answered, with its status.
type refusedError struct {
	status int
	json   bool // whether it is of the interface for programs
	error
}
