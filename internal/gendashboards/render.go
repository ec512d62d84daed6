// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// schemaVersion is the version of Grafana's format of dashboards that is written: that of Grafana 12. Earlier ones read it too.
const schemaVersion = 41

// source is the data source of all panels: that which the variable names.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// object is a JSON object. Its members are written in the order of their names.
type object map[string]any

// render returns the dashboard in Grafana's JSON.
func (b board) render() ([]byte, error) {
	variables := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}}
	for _, name := range append([]string{"name", "instance"}, b.variables...) {
		v, ok := knownVariables[name]
		if !ok {
			return nil, fmt.Errorf("there is no variable %s", name)
		}
		values := fmt.Sprintf("label_values(%s, %s)", v.metric, v.label)
		variables = append(variables, object{
			"name": name, "label": v.title, "type": "query", "datasource": source, "definition": values,
			"query": object{"query": values, "refId": "values"}, "refresh": 2, "sort": 1, "multi": true, "includeAll": true,
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		})
	}
	dashboard := object{
		"uid": "culvert-" + b.name, "title": b.title, "tags": []string{"culvert"}, "schemaVersion": schemaVersion, "editable": true,
		"graphTooltip": 1, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"links": []object{{"type": "dashboards", "tags": []string{"culvert"}, "title": "culvert", "asDropdown": true, "includeVars": true,
			"keepTime": true}},
		"templating": object{"list": variables}, "panels": b.panels(),
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(dashboard)
	return text.Bytes(), err
}

// width is that of a dashboard in Grafana's grid.
const width = 24

// panels returns the headings and panels of all rows, laid out from top to bottom.
func (b board) panels() (all []object) {
	y := 0
	add := func(o object, x, w, h int) {
		o["id"] = len(all) + 1
		o["gridPos"] = object{"x": x, "y": y, "w": w, "h": h}
		all = append(all, o)
	}
	for _, r := range b.rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 0, width, 1)
		y++
		height := r.height
		if height == 0 {
			height = 8
		}
		w := width / len(r.panels)
		for n, p := range r.panels {
			add(p.object(), n*w, w, height)
		}
		y += height
	}
	return all
}

// object returns the panel without its place.
func (p panel) object() object {
	defaults := object{"unit": p.unit, "custom": object{}}
	options := object{}
	switch p.kind {
	case "timeseries":
		defaults["min"], defaults["custom"] = 0, object{"fillOpacity": 10, "showPoints": "never"}
		options = object{"legend": object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
			"tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "textMode": "value_and_name", "wideLayout": false}
	case "table":
		options = object{"showHeader": true}
	}
	if p.words != nil {
		mapped := object{}
		for _, value := range slices.Sorted(maps.Keys(p.words)) {
			mapped[value] = object{"text": p.words[value], "color": colors[value]}
		}
		defaults["mappings"] = []object{{"type": "value", "options": mapped}}
	}
	o := object{
		"type": p.kind, "title": p.title, "description": p.about, "datasource": source, "options": options,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	targets := []object{}
	for n, q := range p.queries {
		t := object{"refId": string(rune('A' + n)), "datasource": source, "expr": q.expr, "legendFormat": q.legend, "range": true}
		if p.kind == "table" {
			t["range"], t["instant"], t["format"] = false, true, "table"
		}
		targets = append(targets, t)
	}
	o["targets"] = targets
	if p.kind == "table" {
		o["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "__name__": true, "job": true}}}}
	}
	return o
}

// colors are those of the values that have words.
var colors = map[string]string{"0": "red", "1": "green"}
