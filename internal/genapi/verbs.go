// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/cluster/access"
	"culvert/internal/decap"
	"culvert/internal/doctor"
	"culvert/internal/edit"
	"culvert/internal/filter/filterview"
	"culvert/internal/fleet"
	"culvert/internal/guest"
	"culvert/internal/lab"
	"culvert/internal/lb/lbview"
	"culvert/internal/node"
	"culvert/internal/route/routeview"
	"culvert/internal/scion/scionplane"
	"culvert/internal/show/status"
	"culvert/internal/version"
)

// printed has what each verb prints with -j, one of several if it depends on flags. A test of the command tree wants all verbs
// that have -j.
func printed() map[string][]any {
	all := map[string][]any{
		"bench compare":   {report.Comparison{}},
		"bench insn":      {[]guest.Counts{}},
		"bench run":       {report.Report{}},
		"bench sink":      {load.ListenReport{}},
		"cluster list":    {[]access.Grant{}},
		"check":           {node.CheckAnswer{}},
		"doctor":          {doctor.Report{}},
		"fleet history":   {fleet.History{}},
		"fleet status":    {fleet.Status{}},
		"fleet urgent":    {fleet.UrgentList{}},
		"fleet where":     {fleet.Answers{}},
		"filter list":     {filterview.Report{}},
		"filter set list": {filterview.SetList{}},
		"filter set show": {filterview.SetEntries{}},
		"filter test":     {filterview.Tested{}},
		"filter top":      {filterview.Talkers{}},
		"gen blast":       {load.BlastReport{}},
		"key list":        {[]scionplane.KeyInfo{}},
		"lab list":        {[]lab.Listed{}},
		"lb decap show":   {decap.Report{}},
		"lb explain":      {lbview.Explanation{}},
		"lb flows":        {lbview.FlowList{}, lbview.FlowCounts{}},
		"lb show":         {lbview.Report{}},
		"reload":          {node.ReloadAnswer{}},
		"route check":     {routeview.Checked{}},
		"route get":       {routeview.Got{}},
		"route show":      {routeview.Stats{}},
		"status":          {status.Report{}},
		"version":         {version.Answer{}},
	}
	for _, v := range edit.Verbs() {
		all[v.Words] = []any{edit.Result{}}
	}
	for _, words := range fleet.UrgentVerbs() {
		all[words] = []any{fleet.Reach{}}
	}
	return all
}

// verbs returns the schema of what each verb prints with -j.
func (s *schemas) verbs() (object, error) {
	all := object{}
	for words, values := range printed() {
		var choices []json.RawMessage
		for _, v := range values {
			schema, err := s.add(v)
			if err != nil {
				return nil, err
			}
			choices = append(choices, schema)
		}
		if all[words] = choices[0]; len(choices) > 1 {
			all[words] = object{"anyOf": choices}
		}
	}
	return all, nil
}
