// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"culvert/internal/api"
	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/host/tcplisten"
	"culvert/internal/httpserve"
	"culvert/internal/stats"
	"culvert/internal/web"
)

// webPeriod is how often it is checked whether the host still has the address of the page. It is a variable for tests.
var webPeriod = 5 * time.Second

// webPage serves the page to look at, at an address that may change. A process without it goes on.
type webPage struct {
	httpserve.Place
	log    *slog.Logger
	metric *stats.Web
	// source returns what the page is answered from: not beside a reload. answers is a handler of it.
	source  func() *api.Source
	answers http.Handler

	mu sync.Mutex
	// state is nil while there is no page. tell publishes it, nil until somebody listens.
	state *inforce.Web
	tell  func(*inforce.Web)
}

// newWebPage returns a page that is served nowhere yet.
func newWebPage(p *process) *webPage {
	w := &webPage{log: p.log, metric: p.exported.web, source: p.source}
	w.Place = httpserve.Place{Serve: w.serve, Failed: func(err error) { w.problem(err.Error()) }}
	return w
}

// move has the page served at the address of a configuration from now on, by a listener from Listen.
func (w *webPage) move(n *config.Node, l net.Listener) {
	address := n.WebAddress()
	if address == w.Address() {
		return
	}
	w.Close()
	var state *inforce.Web
	if address != "" {
		state = &inforce.Web{Listen: address, Open: !config.Loopback(address)}
		w.log.Info("a page shows what the data plane does", "url", config.WebURL(address))
	}
	if state != nil && state.Open {
		w.log.Warn("the page has no password and no encryption: whoever reaches its address may look; use 127.0.0.1 and a tunnel, "+
			"or a firewall", "listen", address)
	}
	w.set(state)
	w.answers = api.Handler(w.source())
	w.Move(address, l)
}

// serve serves the page, and looks after its address.
func (w *webPage) serve(ctx context.Context, l net.Listener) error {
	w.mu.Lock()
	address := w.state.Listen
	w.mu.Unlock()
	h, err := web.Handler(address, w.answers)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		tick := time.NewTicker(webPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := tcplisten.Elsewhere(address); err != nil {
				w.problem(err.Error())
			} else {
				w.problem("")
			}
		}
	})
	return web.Serve(ctx, l, h)
}

// problem notes why nobody gets the page, "" if that is not so.
func (w *webPage) problem(text string) {
	w.mu.Lock()
	now := w.state
	w.mu.Unlock()
	if now == nil || now.Problem == text {
		return
	}
	if text == "" {
		w.log.Info("the page to look at is there again", "listen", now.Listen)
	} else {
		w.log.Error("the page to look at is not there", "listen", now.Listen, "err", text)
	}
	w.set(&inforce.Web{Listen: now.Listen, Open: now.Open, Problem: text})
}

// set publishes the state of the page.
func (w *webPage) set(state *inforce.Web) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
	w.metric.Set(state != nil, state != nil && state.Problem == "")
	if w.tell != nil {
		w.tell(state)
	}
}

// publish has the state told to somebody, now and whenever it changes.
func (w *webPage) publish(tell func(*inforce.Web)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
	tell(w.state)
}

// listeners are those of a configuration, nil for addresses that stay as they are.
type listeners struct{ metrics, web net.Listener }

func (l listeners) close() {
	closeListener(l.metrics)
	closeListener(l.web)
}

// listen opens the listeners of another configuration, beside those of the one before.
func (p *process) listen(n *config.Node) (l listeners, err error) {
	if l.metrics, err = p.metrics.Listen(n.Metrics, p.web.Listener()); err != nil {
		return l, n.Locate("metrics", metricsError(n.Metrics, err))
	}
	if l.web, err = p.web.Listen(n.WebAddress(), p.metrics.Listener()); err != nil {
		closeListener(l.metrics)
		return listeners{}, n.In("web").Locate("listen", webError(n.WebAddress(), err))
	}
	return l, nil
}

// move serves at the addresses of another configuration.
func (p *process) move(n *config.Node, l listeners) {
	p.metrics.Move(n.Metrics, l.metrics)
	p.web.move(n, l.web)
}
