// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/api"
	"culvert/internal/datapath"
	"culvert/internal/edit"
	"culvert/internal/host/trust"
	"culvert/internal/host/unixsock"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

// ChangeOutput is where the result of a change goes.
type ChangeOutput struct {
	// JSON writes the result as an edit.Result.
	JSON bool
	Out  io.Writer
	// Progress receives a line when the process takes long. It may be nil.
	Progress io.Writer
}

// Change carries out what a verb asks for on the data plane on, or on the only one if on is "". The process that serves it does the
// work; without a process it is done here, in the same way.
func Change(ctx context.Context, on string, q edit.Request, o ChangeOutput) error {
	if err := q.Check(); err != nil {
		return err
	}
	inst, err := edit.Open(q, on)
	if err != nil {
		return err
	}
	defer inst.Close()
	result, err := changeServed(ctx, inst, q, o.Progress)
	if errors.Is(err, errNotServed) {
		var live io.Writer
		if !o.JSON {
			live = o.Out
		}
		result, err = edit.Do(ctx, q, inst, live)
		if err != nil || !o.JSON {
			return err
		}
	}
	if err != nil {
		return err
	}
	if o.JSON {
		return show.JSON(o.Out, result)
	}
	return show.Lines(o.Out, result.Lines())
}

// errNotServed says that no process takes changes of a data plane.
var errNotServed = errors.New("no process serves it")

// changeTime bounds how long a process may take for a change, with those before it. It is a variable for tests.
var changeTime = 3 * time.Minute

// changeServed has the process that serves a data plane carry a change out.
func changeServed(ctx context.Context, inst *datapath.Instance, q edit.Request, progress io.Writer) (*edit.Result, error) {
	if !inst.Served() {
		return nil, errNotServed
	}
	path, err := controlOf(ctx, inst)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	words := edit.WordsOf(q)
	result := new(edit.Result)
	done := edit.Progress(progress, words+": waiting for the process")
	err = asked(ctx, path, http.MethodPost, "/v1/"+strings.ReplaceAll(words, " ", "/"), changeTime, body, result)
	done()
	var refused *refusedError
	var late *lateError
	switch {
	case err == nil:
		return result, nil
	case notThere(err):
		return nil, errNotServed // it has ended since
	case errors.As(err, &refused) && refused.status == http.StatusBadRequest:
		return nil, usage.Error(refused.error)
	case errors.As(err, &refused) && refused.status == http.StatusNotFound && (!refused.json || strings.Contains(refused.Error(), api.NoPath)):
		return nil, otherVersion(inst, words)
	case errors.As(err, &refused):
		return nil, refused.error
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.As(err, &late):
		return nil, fmt.Errorf("%w: the change may be in force or not: look before you try again", err)
	}
	return nil, err
}

// otherVersion says that the process does not know what it is asked for.
func otherVersion(inst *datapath.Instance, words string) error {
	return fmt.Errorf("the process that serves %s is of another version of culvert and does not know '%s': start it again, "+
		"packets flow on meanwhile ('systemctl restart culvert')", inst.Name(), words)
}

// notThere tells whether nobody listens on a socket.
func notThere(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// controlOf returns the control socket of the process that serves a data plane. The error is errNotServed if it has none, as at its
// start and at its end.
func controlOf(ctx context.Context, inst *datapath.Instance) (string, error) {
	switch err := trust.Dir(trust.RunDir); {
	case errors.Is(err, fs.ErrNotExist):
		return "", errNotServed
	case err != nil:
		return "", err
	}
	for _, path := range socketPaths(inst.NetNS(), inst.Name(), unixsock.Extension) {
		var s Serving
		err := asked(ctx, path, http.MethodGet, servingPath, servingTime, nil, &s)
		var late *lateError
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case notThere(err):
		case errors.As(err, &late):
			return "", fmt.Errorf("%w; nothing was changed. If it hangs, end it (kill -9 %d): packets flow on, and changes work without it", err, inst.ServerPID())
		case err != nil:
			return "", err
		case s.NetNS == inst.NetNS() && s.Name == inst.Name():
			return path, nil
		}
	}
	return "", errNotServed
}

// logChange logs what a verb has done by the process.
func (p *process) logChange(verb, done, by string) {
	p.log.Info("changed by hand", "verb", verb, "done", done, "by", by)
}
