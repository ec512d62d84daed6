// SPDX-License-Identifier: Apache-2.0

//go:build example

package example

import (
	"context"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/stage"
)

// Stage gives services other addresses and lets tunnels end.
var Stage stage.Stage = exampleStage{}

type exampleStage struct{}

// Name implements stage.Stage.
func (exampleStage) Name() string { return Name }

// Table implements stage.Stage.
func (exampleStage) Table() config.Table { return new(Table) }

// Plan implements stage.Stage. A file without [example] has a plan too: the program that an earlier file has put in front
// goes.
func (s exampleStage) Plan(f stage.File) (stage.Plan, error) {
	t := stage.Table[*Table](f, s)
	if t == nil {
		return &plan{}, nil
	}
	return &plan{&t.options}, nil
}

// plan is an [example] table.
type plan struct{ options *Options } // nil without one

// Name implements stage.Plan.
func (p *plan) Name() string { return Name }

// Check implements stage.Plan: nothing on the host contradicts the table.
func (p *plan) Check(stage.Situation) error { return nil }

// Prepare implements stage.Plan.
func (p *plan) Prepare(context.Context, stage.Start) (stage.Prepared, error) {
	return &prepared{plan: p, part: NewPart(p.options)}, nil
}

// prepared has taken nothing: all that it needs is a data plane.
type prepared struct {
	*plan
	part *Part
}

// Part implements stage.Prepared.
func (p *prepared) Part() datapath.Part { return p.part }

// Commit implements stage.Prepared. Services are in the program from its first packet on; what is left is the program in
// front of a data plane that is new.
func (p *prepared) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	if err := p.part.Begin(inst); err != nil {
		return err
	}
	return rest()
}

// Serve implements stage.Prepared: the programs need no process.
func (p *prepared) Serve(context.Context, func()) error { return nil }

// Settle implements stage.Prepared.
func (p *prepared) Settle(context.Context) error { return nil }

// Restore implements stage.Restorer.
func (p *prepared) Restore(inst *datapath.Instance) error { return p.part.Begin(inst) }

// Close implements stage.Prepared.
func (p *prepared) Close() error { return nil }
