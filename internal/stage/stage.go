// SPDX-License-Identifier: Apache-2.0

// Package stage is the contract between a node and the stages of its pipeline. A node reads a file, has every stage plan and
// prepare, attaches the data plane, and has every stage commit: all of them, or none. Then it has them serve.
//
//	Plan     reads a part of the file; nothing is touched
//	Prepare  takes what can be refused: locks, sockets, addresses; Close gives it back
//	Check    looks at what runs, and completes the plan with what was made by hand there
//	Part     says what the program is to be loaded with
//	Commit   fills what the interfaces carry from now on
//	Serve    keeps that in step while the process lives; Settle does once what it would, where there is no process
package stage

import (
	"context"
	"io"
	"log/slog"

	"culvert/internal/config"
	"culvert/internal/datapath"
)

// File is a configuration file that has been read.
type File struct {
	Path string
	Node *config.Node
}

// Table is the table of a stage in the file, nil if the file has none.
func Table[T config.Table](f File, s Stage) T {
	t, _ := f.Node.Tables[s.Name()].(T)
	return t
}

// Stage is a function of the pipeline. Its name is that of its table in the file.
type Stage interface {
	Name() string
	// Table is a new one, for the decoder.
	Table() config.Table
	// Plan works out what the file asks of the stage. It is nil if the stage has nothing to do with that file. Errors
	// name file, line and column.
	Plan(File) (Plan, error)
}

// Plan is what a file asks of a stage.
type Plan interface {
	Name() string
	Prepare(context.Context, Start) (Prepared, error)
	// Check refuses what does not go together with the host, with what runs and with other stages, before anything of
	// that is touched.
	Check(Situation) error
}

// Placer is a Plan that knows what the data plane is called, and on which interfaces it has to be.
type Placer interface {
	// Place takes the interfaces that were asked for, none for those that the plan finds itself. It returns none if there
	// is no interface for a data plane.
	Place(interfaces []string) (name string, on []string, err error)
}

// PortChecker is a Plan that does not bear every interface.
type PortChecker interface {
	// CheckPort refuses an interface that appears later.
	CheckPort(name string) error
}

// Start is how a data plane is brought up.
type Start struct {
	// Process tells whether a process stays, which serves the stages.
	Process bool
	Log     *slog.Logger
	// Out is told what a person has to know who attaches without a process.
	Out io.Writer
}

// Situation is what a plan meets.
type Situation struct {
	// Interfaces are those that the data plane is to be on.
	Interfaces []string
	// Running is the data plane of that name in this network namespace, nil if there is none.
	Running *datapath.Instance
	// Plans are those of all stages.
	Plans []Plan
}

// Prepared is a stage that has what it needs.
type Prepared interface {
	Name() string
	// Part is what the stage has in the program, nil if that is nothing.
	Part() datapath.Part
	// Commit brings the plan into force on a data plane that its interfaces carry already, and calls rest, which does
	// the same for the stages behind this one. When rest fails, what Commit has changed in maps that an earlier program
	// uses too is put back.
	Commit(ctx context.Context, inst *datapath.Instance, rest func() error) error
	// Serve keeps the stage in step with the host until ctx ends, and calls ready once it is. It returns nil at once if
	// there is nothing to keep. After an error the stage's packets go to the kernel, or where they went before.
	Serve(ctx context.Context, ready func()) error
	// Settle does once what Serve would go on doing, for a data plane without a process, and tells what it has not found.
	Settle(context.Context) error
	Close() error
}

// Restorer is a Prepared stage whose part goes when somebody takes the data plane off all interfaces.
type Restorer interface {
	// Restore brings the file's part back into force on the data plane, which is attached again.
	Restore(inst *datapath.Instance) error
}
