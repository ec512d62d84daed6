// SPDX-License-Identifier: Apache-2.0

// Package stage is the contract between a node and the stages of its pipeline. A node reads a file and calls the methods
// below for all stages, in this order. If one of them fails, up to the last Commit, nothing has changed.
//
//	Plan     works out what the file asks for; it touches nothing
//	Prepare  takes what can be refused: locks, sockets, addresses; Close releases it
//	Check    compares the plan with what runs, and adds to the plan what was made there by hand
//	CheckHost (if a plan has it) looks whether the host has what the plan needs; it touches nothing
//	Part     describes the stage's part of the program that is loaded
//	Commit   brings the plan into force on the data plane, which is attached by then
//	Serve    keeps the data plane in step with the host while the process runs
//	Settle   takes the place of Serve if there is no process: it does that work once
//
// A change by hand, an Edit, goes the same way: it is worked out, checked with the other stages, and in force as a whole or not
// at all.
package stage

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/config"
	"culvert/internal/datapath"
)

// File is a configuration file that was read and checked.
type File struct {
	Path string
	Node *config.Node
}

// Table returns the table of a stage in the file, nil if the file has none.
func Table[T config.Table](f File, s Stage) T {
	t, _ := f.Node.Tables[s.Name()].(T)
	return t
}

// Stage is a function of the pipeline. Its name is that of its table in the file.
type Stage interface {
	Name() string
	// Table returns a new, empty table for the decoder.
	Table() config.Table
	// Plan works out what the file asks of the stage. It returns nil if the file does not turn the stage on. Errors have
	// file, line and column in front.
	Plan(File) (Plan, error)
}

// Plan is what a file asks of a stage.
type Plan interface {
	Checker
	// Prepare takes locks, sockets and addresses for the stage. An error leaves nothing taken.
	Prepare(context.Context, Start) (Prepared, error)
}

// Placer is a Plan that knows the name of the data plane and the interfaces that it needs.
type Placer interface {
	// Place returns the name of the data plane and the interfaces to attach it to. interfaces are those that the user named;
	// without any, the plan finds them itself. on is empty if no interface is suitable for a data plane.
	Place(interfaces []string) (name string, on []string, err error)
}

// HostChecker is a Plan that needs more of the host than interfaces. A look at a file without a start calls it too, without Prepare.
type HostChecker interface {
	// CheckHost returns an error for what Prepare, Commit or Serve would be refused on this host, as far as that can be known
	// without touching anything.
	CheckHost(Host) error
}

// Host is how a HostChecker looks at the host.
type Host struct {
	// Interfaces are those to attach the data plane to.
	Interfaces []string
	// Process tells whether a process is to serve the stages.
	Process bool
	// Served is the process that serves the data plane already, 0 for none. What it holds is not in the way.
	Served int
	// Note receives what the user has to know and what does not keep the stage from starting.
	Note func(error)
}

// Reader is a Plan that was read from more files than the configuration.
type Reader interface {
	// Files returns their paths.
	Files() []string
}

// Differ is a Plan that can say what it changes.
type Differ interface {
	// Changes returns a line for each thing that differs from what a former plan of the stage asks for, and for each change by
	// hand on the running data plane that the plan takes back. former is nil if the stage was off, running if there is no
	// data plane.
	Changes(former Plan, running *datapath.Instance) []string
}

// Forgetter is a Stage that loses something when it is switched off, although the data plane goes on.
type Forgetter interface {
	// Forgets names what is lost, as "the flow table", "" for nothing. without is the plan of a file without the stage's table,
	// nil if there is none.
	Forgets(without Plan) string
}

// Summarizer is a Plan that can say how much it turns on.
type Summarizer interface {
	// Summary returns counts of what the file has.
	Summary() []Count
}

// Count is a number of things in a file.
type Count struct {
	// Key is the name in JSON, in the plural: "rules". One is the name of a single thing in text: "rule".
	Key, One string
	N        int
}

// Successor is a Plan that can follow an earlier one of its stage in the process that serves it, when the file is read again.
// Without it Prepare is called while the earlier stage serves, and the earlier stage ends before Commit.
type Successor interface {
	// ServedBy tells whether former, as it is, does what the plan asks of Serve: then it goes on, unless a new program is loaded.
	ServedBy(former Prepared) bool
	// Succeed is Prepare with what former holds: locks, sockets, sessions. It takes nothing away from former, which serves
	// until the new stage's Commit, and goes on if that fails or the new stage is closed before. The order is: former's
	// Serve ends, Commit of the new stage, Close of former, Serve of the new stage. The instance that Commit gets is former's
	// if the program stays, and its successor otherwise; shared maps are the same. Former's Serve ends with the cause
	// ErrSucceeded and is called again if the Commit fails. A stage that the file has no more has no successor: its Close comes
	// once the others serve.
	Succeed(ctx context.Context, start Start, former Prepared) (Prepared, error)
}

// ErrSucceeded is the cause with which the context of a Serve ends whose work another Serve of this process goes on with: what
// neighbors and backends see stays as it is.
var ErrSucceeded = errors.New("another configuration has taken over")

// Taker is a Prepared stage whose Serve takes over what until then goes on as the former configuration asked for, though that one's Serve
// has ended.
type Taker interface {
	// Taken is closed once Serve has taken over. A configuration is in force from then on.
	Taken() <-chan struct{}
}

// PortChecker is a Plan that does not work on every interface.
type PortChecker interface {
	// CheckPort returns an error if the stage does not work on an interface, which exists. It is called before the start, and for one
	// that has appeared later.
	CheckPort(name string) error
}

// Start says how a data plane is started.
type Start struct {
	// Process tells whether this process goes on and serves the stages.
	Process bool
	Log     *slog.Logger
	// Metrics are those of the process itself, for a stage that serves metrics at an address of its own. It may be nil.
	Metrics prometheus.Collector
	// Withheld tells whether the node is in maintenance: it announces nothing then. It may be nil.
	Withheld func() bool
	// Out receives what the user has to know if no process serves the data plane.
	Out io.Writer
}

// Situation is what a plan is checked against.
type Situation struct {
	// Interfaces are those to attach the data plane to.
	Interfaces []string
	// Running is the data plane of the same name in this network namespace, nil if there is none.
	Running *datapath.Instance
	// Stages are what is asked of all stages: their plans, or where one is changed by hand what they do.
	Stages []Checker
}

// Prepared is a stage that has all that it needs.
type Prepared interface {
	Name() string
	// Part returns the stage's part of the program, nil if it has none.
	Part() datapath.Part
	// Commit brings the plan into force on an attached data plane, and then calls rest, which does the same for the stages
	// behind this one. If that or rest fails, Commit restores what it has changed in maps that an earlier program uses too, and
	// returns the error.
	Commit(ctx context.Context, inst *datapath.Instance, rest func() error) error
	// Serve keeps the data plane in step with the host until ctx ends, and calls ready once it is in step. It returns nil at
	// once if the stage needs no serving. After an error the stage's packets go to the kernel, or where they went before.
	Serve(ctx context.Context, ready func()) error
	// Settle does the work of Serve once, for a data plane without a process, and reports what it could not find.
	Settle(context.Context) error
	// Close releases what Prepare has taken.
	Close() error
}

// Watched is a Prepared stage with loops without which it does not work. One that is not Watched counts as alive.
type Watched interface {
	// Alive returns an error if a loop of Serve has not turned for too long, and nil before Serve and after it. It may be called
	// while Serve runs, and does not wait for anything.
	Alive() error
}

// Limited is a Prepared stage whose Serve may find tables too small.
type Limited interface {
	// Short says in one line which table has no room for what should be in it, what becomes of that, and which key of the file
	// gives it more. It returns "" if there is room. It may be called while Serve runs, and does not wait for anything.
	Short() string
}

// Restorer is a Prepared stage that loses its state when the data plane is detached from all interfaces.
type Restorer interface {
	// Restore brings the file's plan into force again on the data plane, which was detached and attached again.
	Restore(inst *datapath.Instance) error
}
