// SPDX-License-Identifier: Apache-2.0

// Package api answers programs that want to see what a data plane does, or to change it: over HTTP, with what the verbs of culvert
// print with -j. Handler changes nothing. Its clients may be of another user, slow, or many: what they do stays without effect on the
// process. Control is for root.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"culvert/internal/edit"
	"culvert/internal/events"
	"culvert/internal/filter/filterview"
	"culvert/internal/lb/lbview"
	"culvert/internal/reason"
	"culvert/internal/route/routeview"
	"culvert/internal/scion/scionplane"
	"culvert/internal/show/status"
	"culvert/internal/version"
)

// Source is what answers are about.
type Source struct {
	// Name is that of the data plane.
	Name string
	// Metrics serves the process's metrics.
	Metrics http.Handler
	// LogError logs what is a mistake of culvert's own.
	LogError func(message string, fields ...any)
	// LogChange logs what a verb has done, and who has asked for it.
	LogChange func(verb, done, by string)
	// Events has what happens.
	Events *events.Hub
	// LogCapture logs that a capture begins or ends, with fields. err is why it has ended, nil if it was not ended by an error.
	LogCapture func(text string, err error, fields ...any)
	// Changing is held while a change is carried out.
	Changing sync.Locker
	// Reload reads the configuration again, as somebody has asked for.
	Reload func(ctx context.Context, q Reload, by string) (*Reloaded, error)
}

// Path is a path that has an answer.
type Path struct {
	// Path is the path of the URL.
	Path string
	// Method is "" for GET.
	Method string
	// What says in a line what the answer is.
	What string
	// Verb is the command line that prints the same, "" if there is none. The data plane stands for NAME.
	Verb string
	// Kind is what the data plane has to be so that there is an answer, "" if it does not matter.
	Kind string
	// Request has the type of the request, nil if there is none.
	Request any
	// Answer has the type of the answer. Nil is for text.
	Answer any
	// Content is the type of an answer that does not end by itself, "" for others.
	Content string
	// Parameters may be in the URL's query.
	Parameters []Parameter
	// write writes the answer. Those that are fixed are made beside others.
	write func(s *Source, q url.Values, out io.Writer) error
	fixed bool
	// change is the verb that changes something.
	change edit.Verb
}

// Parameter is a parameter in the query of a URL.
type Parameter struct {
	Name, What string
	// Kind is numberKind or another one.
	Kind string
	// Least, Most and Usual are those of a number.
	Least, Most, Usual int
}

// Kinds of parameters.
const (
	numberKind = ""
	textKind   = "text"
	flagKind   = "flag" // true or false
	listKind   = "list" // of texts, each with the name
)

// IsFlag tells whether a parameter is a flag: true or false.
func (p Parameter) IsFlag() bool { return p.Kind == flagKind }

// IsText tells whether it is a text.
func (p Parameter) IsText() bool { return p.Kind == textKind }

// IsList tells whether it is a list of texts.
func (p Parameter) IsList() bool { return p.Kind == listKind }

// Numbers of flows in an answer.
const (
	usualFlows = 1000
	mostFlows  = 10_000
)

// MetricsPath is the path of the answer that is no JSON.
const MetricsPath = "/metrics"

// listPath is the path of the list of all paths.
const listPath = "/v1/"

// flowsParameter is how many flows an answer has at most.
var flowsParameter = Parameter{Name: "n", What: "List so many flows at most.", Least: 1, Most: mostFlows, Usual: usualFlows}

// Paths returns the paths that show something, sorted.
func Paths() []Path {
	return []Path{
		{Path: MetricsPath, What: "the process's metrics, in Prometheus's text format"},
		{Path: listPath, What: "the paths of this socket", Answer: List{}, fixed: true},
		{Path: EventsPath, What: "what happens from now on, a line of JSON for each event; it ends when the client does", Answer: events.Event{},
			Content: "application/x-ndjson"},
		{Path: "/v1/filter", What: "the packet filter: rules, counters, sets", Verb: "culvert filter list --on NAME -j", Answer: filterview.Report{},
			write: func(s *Source, _ url.Values, out io.Writer) error { return filterview.List(s.Name, true, out) }},
		{Path: "/v1/filter/sets", What: "the filter's sets", Verb: "culvert filter set list --on NAME -j", Answer: filterview.SetList{},
			write: func(s *Source, _ url.Values, out io.Writer) error { return filterview.ListSets(s.Name, true, out) }},
		{Path: "/v1/filter/top", What: "the heaviest talkers, while a 'culvert filter top' runs", Kind: "data plane whose talkers somebody looks at",
			Answer: filterview.Talkers{}, write: func(s *Source, _ url.Values, out io.Writer) error { return filterview.TopNow(s.Name, out) }},
		{Path: "/v1/lb", What: "the load balancer: VIPs and backends", Verb: "culvert lb show --on NAME -j", Kind: "load balancer", Answer: lbview.Report{},
			write: func(s *Source, _ url.Values, out io.Writer) error {
				return lbview.Show(lbview.ShowOptions{On: s.Name, JSON: true}, out)
			}},
		{Path: "/v1/lb/flows", What: "flows in the flow table", Verb: "culvert lb flows --on NAME -n N -j", Kind: "load balancer", Answer: lbview.FlowList{},
			Parameters: []Parameter{flowsParameter}, write: writeFlows},
		{Path: "/v1/reasons", What: "the reasons of packets' verdicts, as in culvert-reasons(7)", Answer: Reasons{}, fixed: true, write: writeReasons},
		{Path: "/v1/route", What: "the IP router: mirror, next hops, devices", Verb: "culvert route show --on NAME -j", Kind: "IP router", Answer: routeview.Stats{},
			write: func(s *Source, _ url.Values, out io.Writer) error {
				return routeview.WriteStats(s.Name, true, false, out)
			}},
		{Path: "/v1/scion/keys", What: "IDs and times of the forwarding keys, not the keys", Verb: "culvert key list --on NAME -j", Kind: "SCION router",
			Answer: []scionplane.KeyInfo{}, write: func(s *Source, _ url.Values, out io.Writer) error { return edit.ListKeys(s.Name, true, out) }},
		{Path: "/v1/status", What: "what is attached, and what it has counted", Verb: "culvert status --on NAME -j", Answer: status.Report{},
			write: func(s *Source, _ url.Values, out io.Writer) error {
				return status.Show(out, status.Options{Router: s.Name, JSON: true})
			}},
		{Path: "/v1/version", What: "the version of the process", Verb: "culvert version -j", Answer: version.Answer{}, fixed: true,
			write: func(_ *Source, _ url.Values, out io.Writer) error { return version.WriteJSON(out) }},
	}
}

// List is the answer that has all paths.
type List struct {
	Paths []Listed `json:"paths"`
}

// Listed is a path in a List.
type Listed struct {
	Path string `json:"path"`
	// Method is left out for GET.
	Method string `json:"method,omitempty"`
	// What says in a line what the answer is.
	What string `json:"what"`
	// Verb is the command line that prints the same, left out if there is none.
	Verb string `json:"verb,omitempty"`
}

// list returns the list of paths.
func (h *server) list(out io.Writer) error {
	list := List{Paths: []Listed{}}
	for _, p := range h.order {
		list.Paths = append(list.Paths, Listed{p.Path, p.Method, p.What, strings.ReplaceAll(p.Verb, "NAME", h.source.Name)})
	}
	return json.NewEncoder(out).Encode(list)
}

// Reasons is the answer that explains all reasons.
type Reasons struct {
	Reasons []Reason `json:"reasons"`
}

// Reason is a reason by which packets leave the programs.
type Reason struct {
	// Stage has the reason; core and filter are in front of all others.
	Stage string `json:"stage"`
	// Verdict is pass, punt, drop, fwd or decap.
	Verdict string `json:"verdict"`
	Name    string `json:"reason"`
	// Text explains it in a sentence.
	Text string `json:"text"`
}

func writeReasons(_ *Source, _ url.Values, out io.Writer) error {
	all := Reasons{Reasons: []Reason{}}
	for _, s := range reason.Stages() {
		for _, r := range s.Reasons {
			all.Reasons = append(all.Reasons, Reason{Stage: s.Name, Verdict: r.Verdict, Name: r.Name, Text: r.Text})
		}
	}
	return json.NewEncoder(out).Encode(all)
}

func writeFlows(s *Source, q url.Values, out io.Writer) error {
	n, err := flowsParameter.value(q)
	if err != nil {
		return err
	}
	return lbview.Flows(lbview.FlowsOptions{On: s.Name, Limit: n, JSON: true}, out)
}

// requestError says what is wrong with a request.
type requestError struct{ text string }

func (e *requestError) Error() string { return e.text }

// value returns the value of a parameter.
func (p Parameter) value(q url.Values) (int, error) {
	if !q.Has(p.Name) {
		return p.Usual, nil
	}
	n, err := strconv.Atoi(q.Get(p.Name))
	if err != nil || n < p.Least || n > p.Most {
		return 0, &requestError{fmt.Sprintf("%s=%s: use a whole number from %d to %d", p.Name, q.Get(p.Name), p.Least, p.Most)}
	}
	return n, nil
}

// check refuses a value that the parameter cannot have.
func (p Parameter) check(q url.Values) error {
	switch value := q.Get(p.Name); p.Kind {
	case numberKind:
		_, err := p.value(q)
		return err
	case flagKind:
		if q.Has(p.Name) && value != "true" && value != "false" {
			return &requestError{fmt.Sprintf("%s=%.100s: use true or false", p.Name, value)}
		}
	}
	return nil
}

// query returns the parameters of a request. Those that the path does not have are an error, and so are two of one name.
func (p Path) query(u *url.URL) (url.Values, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, &requestError{"the query of the URL cannot be read: " + err.Error()}
	}
	for name, values := range q {
		switch {
		case !slices.ContainsFunc(p.Parameters, func(known Parameter) bool { return known.Name == name }):
			return nil, &requestError{fmt.Sprintf("%s has no parameter %s", p.Path, name)}
		case len(values) > 1 && !slices.ContainsFunc(p.Parameters, func(known Parameter) bool { return known.Name == name && known.Kind == listKind }):
			return nil, &requestError{fmt.Sprintf("%s is given %d times", name, len(values))}
		}
	}
	for _, known := range p.Parameters {
		if err := known.check(q); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// isRequestError tells whether the client can do better.
func isRequestError(err error) bool {
	var e *requestError
	return errors.As(err, &e)
}
