// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/stage"
)

var _ stage.Successor = (*plan)(nil)

// ServedBy implements stage.Successor.
func (p *plan) ServedBy(former stage.Prepared) bool {
	f, ok := former.(*fastPath)
	return ok && !f.failed.Load() && p.file.equal(&f.file) && reflect.DeepEqual(p.router.Config, f.router.Config) && p.sameCore(f.plan)
}

// sameCore tells whether the reference's data plane of former is the one that p asks for.
func (p *plan) sameCore(former *plan) bool {
	a, b := p.router, former.router
	return a.Path == b.Path && p.file.Loose() == former.file.Loose() && a.fragment == b.fragment &&
		reflect.DeepEqual(a.Config.Router, b.Config.Router) && reflect.DeepEqual(a.Config.Features, b.Config.Features) &&
		reflect.DeepEqual(a.Control, b.Control) && reflect.DeepEqual(a.Keys, b.Keys) && reflect.DeepEqual(a.Datapath, b.Datapath) && reflect.DeepEqual(a.BFD, b.BFD)
}

// beginWait is how long Succeed waits for the former router to serve.
const beginWait = 10 * time.Second

// Succeed implements stage.Successor.
func (p *plan) Succeed(ctx context.Context, start stage.Start, former stage.Prepared) (stage.Prepared, error) {
	f, ok := former.(*fastPath)
	if !ok || !start.Process {
		return nil, fmt.Errorf("router %s: no process serves it: start one", p.router.ID())
	}
	a, b := f.router, p.router
	switch {
	case a.ID() != b.ID():
		return nil, badField(b.Path)("general.id", "%s becomes %s: another router needs a restart of the process", a.ID(), b.ID())
	case a.Datapath.LocalIA != b.Datapath.LocalIA:
		return nil, badField(b.TopologyPath())("isd_as", "%s becomes %s: another AS needs a restart of the process",
			addr.IA(a.Datapath.LocalIA), addr.IA(b.Datapath.LocalIA))
	}
	select { // a reload may come right after another one
	case <-f.serves:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(beginWait):
		return nil, fmt.Errorf("router %s has not begun to serve: try again", a.ID())
	}
	next, err := p.prepare(ctx, start.Metrics, f)
	if err != nil {
		return nil, err
	}
	return next, nil
}

// changeLog brings the settings of the log into force that have changed. A level that was set by HTTP stays otherwise.
func changeLog(before, now *Router) {
	was, is := before.Config.Logging.Console, now.Config.Logging.Console
	level := is.Level
	was.Level, is.Level = "", ""
	if was != is {
		if err := startLog(now); err != nil {
			log.Error("Settings of the log not changed", "err", err)
		}
		return
	}
	if strings.EqualFold(level, before.Config.Logging.Console.Level) {
		return
	}
	// Loggers that exist follow only this way.
	request := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(`{"level":"`+strings.ToLower(level)+`"}`))
	answer := httptest.NewRecorder()
	if log.ConsoleLevel.ServeHTTP(answer, request); answer.Code != http.StatusOK {
		log.Error("Level of the log not changed", "err", answer.Body.String())
	}
}
