// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/scionproto/scion/pkg/log"
	"github.com/scionproto/scion/private/env"
	"github.com/scionproto/scion/private/service"
	"github.com/scionproto/scion/private/topology"
	api "github.com/scionproto/scion/router/mgmtapi"

	"culvert/internal/stats"
)

// statusHandler serves what the reference serves on its metrics address: the status pages, the
// profiler and the metrics. It calls update before every scrape.
func (s *SlowPath) statusHandler(update func()) (http.Handler, error) {
	mux := http.NewServeMux()
	pages := service.StatusPages{
		"info":      service.NewInfoStatusPage(),
		"config":    service.NewConfigStatusPage(s.router.Config),
		"log/level": s.logLevelPage(),
		"topology":  topologyPage(s.router.Control.Topo),
	}
	if err := pages.Register(mux, s.router.ID()); err != nil {
		return nil, err
	}
	options := stats.HandlerOptions(log.Error, prometheus.DefaultRegisterer)
	options.Timeout = env.HandlerTimeout
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(prometheus.DefaultRegisterer,
		promhttp.HandlerFor(stats.Own(prometheus.DefaultGatherer), options)))
	mux.Handle("/debug/pprof/", s.debugOnly(profiler()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" || r.URL.Path == "/all" {
			update()
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// profiler serves the pages that net/http/pprof registers at http.DefaultServeMux, which the router does not serve.
func profiler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// debugOnly serves h if debug_http is set. The process runs as root and its HTTP has no authentication: whoever reaches
// the address could keep a CPU busy with profiles, or fill the disk with a log of level debug.
func (s *SlowPath) debugOnly(h http.Handler) http.Handler {
	if s.debugHTTP {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "off: set debug_http = true in [scion], or start with --debug-http", http.StatusForbidden)
	})
}

// logLevelPage shows the log level to everybody, and changes it if debug_http is set.
func (s *SlowPath) logLevelPage() service.StatusPage {
	page := service.NewLogLevelStatusPage()
	show, change := page.Handler, s.debugOnly(http.HandlerFunc(page.Handler))
	page.Handler = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			show(w, r)
			return
		}
		change.ServeHTTP(w, r)
	}
	return page
}

func topologyPage(topo topology.Topology) service.StatusPage {
	return service.StatusPage{
		Info: "SCION topology",
		Handler: func(w http.ResponseWriter, _ *http.Request) {
			text, err := json.MarshalIndent(topo, "", "    ")
			if err != nil {
				http.Error(w, "Unable to marshal topology", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(append(text, '\n'))
		},
	}
}

// apiHandler serves the reference's management API.
func (s *SlowPath) apiHandler() http.Handler {
	mux := chi.NewRouter()
	mux.Use(allowAnyOrigin)
	mux.Get("/", api.ServeSpecInteractive)
	mux.Get("/openapi.json", api.ServeSpecJSON)
	return api.HandlerFromMuxWithBaseURL(&api.Server{
		Config:    service.NewConfigStatusPage(s.router.Config).Handler,
		Info:      service.NewInfoStatusPage().Handler,
		LogLevel:  s.logLevelPage().Handler,
		Dataplane: s.connector,
	}, mux, "/api/v1")
}

// allowAnyOrigin lets pages of other origins read the API (CORS), as the reference does.
func allowAnyOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		if r.Header.Get("Origin") != "" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
		}
		next.ServeHTTP(w, r)
	})
}
