// SPDX-License-Identifier: Apache-2.0

// Package stages is the list of all stages.
package stages

import (
	"slices"

	"culvert/internal/config"
	"culvert/internal/example"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/sflow/sflowstage"
	"culvert/internal/stage"
)

// All returns the stages in the order in which a packet meets them.
func All() []stage.Stage {
	return slices.DeleteFunc([]stage.Stage{
		filterstage.Stage{},
		lbstage.Stage{},
		scion.Stage{},
		example.Stage, // nil except in its own tests
		routestage.Stage{},
		sflowstage.Stage{}, // no stage of the pipeline: it samples packets wherever they come in and go
	}, func(s stage.Stage) bool { return s == nil })
}

// Parts returns the tables of all stages.
func Parts() (parts []config.Part) {
	for _, s := range All() {
		parts = append(parts, config.Part{Name: s.Name(), New: s.Table})
	}
	return parts
}

// Load reads and checks a configuration file with the tables of all stages, and documents of a cluster.
func Load(path string, more ...config.Remote) (*config.Node, error) {
	return config.Load(path, Parts(), more...)
}

// LoadAll is Load, and returns beside errors what could be read (config.LoadAll).
func LoadAll(path string, more ...config.Remote) (*config.Node, error) {
	return config.LoadAll(path, Parts(), more...)
}

// IsNode tells whether the TOML file at path is culvert's configuration, as opposed to the reference router's.
func IsNode(path string) (bool, error) { return config.IsNode(path, Parts()) }
