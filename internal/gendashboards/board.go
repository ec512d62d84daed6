// SPDX-License-Identifier: Apache-2.0

package main

// board is a dashboard.
type board struct {
	name, title string
	// variables are the names of those of knownVariables that it has, besides the data source, name and instance.
	variables []string
	rows      []row
}

// row is a row of panels under a heading. They share its width and have the same height, 8 if it is 0.
type row struct {
	title  string
	height int
	panels []panel
}

// panel shows some queries.
type panel struct {
	title string
	// kind is that of Grafana's panel: see the functions below.
	kind string
	// unit is Grafana's name of the unit of values: "pps", "binBps", "percentunit", "s".
	unit string
	// about explains what is shown.
	about string
	// words stand for values: "0" and "1".
	words   map[string]string
	queries []query
}

// query is an expression, with what to call its series.
type query struct{ expr, legend string }

// graph is a panel with lines over time.
func graph(title, unit, about string, queries ...query) panel {
	return panel{title: title, kind: "timeseries", unit: unit, about: about, queries: queries}
}

// stat is a panel with the present value of each series.
func stat(title, unit, about string, words map[string]string, queries ...query) panel {
	return panel{title: title, kind: "stat", unit: unit, about: about, words: words, queries: queries}
}

// states is a panel with a bar for each series, whose color shows its value over time.
func states(title, about string, words map[string]string, queries ...query) panel {
	return panel{title: title, kind: "state-timeline", about: about, words: words, queries: queries}
}

// table is a panel with a line for each series: its labels and its present value.
func table(title, unit, about string, queries ...query) panel {
	return panel{title: title, kind: "table", unit: unit, about: about, queries: queries}
}

// q is a query.
func q(expr, legend string) query { return query{expr, legend} }

// knownVariables are the variables of dashboards: the label whose values they have, and the metric to take them from.
var knownVariables = map[string]struct{ label, title, metric string }{
	"name":      {"name", "Data plane", `culvert_dataplane_info`},
	"instance":  {"instance", "Instance", `culvert_dataplane_info{name=~"$name"}`},
	"interface": {"interface", "Interface", `culvert_packets_total{instance=~"$instance"}`},
	"link":      {"interface", "SCION interface", `router_input_pkts_total{instance=~"$instance"}`},
	"rule":      {"rule", "Rule", `culvert_filter_rule_packets_total{instance=~"$instance"}`},
	"cluster":   {"cluster", "Cluster", `cluster:culvert_nodes:count`},
	"vip":       {"vip", "VIP", `culvert_lb_vip_served{instance=~"$instance"}`},
}
