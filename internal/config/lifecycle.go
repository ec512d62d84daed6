// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
)

// What a start does if an interface does not exist.
const (
	// MissingWait attaches to the other interfaces, and to the missing one when it appears.
	MissingWait = "wait"
	// MissingRefuse fails.
	MissingRefuse = "refuse"
)

// What a process does if somebody else detaches its data plane.
const (
	// DetachedExit ends the process.
	DetachedExit = "exit"
	// DetachedAttach attaches the data plane again.
	DetachedAttach = "attach"
	// DetachedStay goes on with the slow path of the SCION router only.
	DetachedStay = "stay"
)

// checkLifecycle checks missing and detached, and fills in their defaults.
func (n *Node) checkLifecycle(at Position) error {
	table, namer := n.namer()
	if n.Detached == "" {
		n.Detached = DetachedExit
		if namer != nil {
			n.Detached = DetachedStay
		}
	}
	switch n.Detached {
	case DetachedExit, DetachedAttach:
	case DetachedStay:
		if namer == nil {
			return at.Locate("detached", fmt.Errorf("detached = %q without [scion]: there is no slow path to go on with, use %q or %q",
				n.Detached, DetachedExit, DetachedAttach))
		}
	default:
		return at.Locate("detached", fmt.Errorf("detached = %q: use %q, %q or, with [scion], %q",
			n.Detached, DetachedExit, DetachedAttach, DetachedStay))
	}
	switch {
	case namer != nil && n.Missing == MissingWait:
		return at.Locate("missing", fmt.Errorf("missing = %q beside [%s]: the router's sockets need the addresses of all its interfaces, use %q",
			n.Missing, table, MissingRefuse))
	case namer != nil:
		n.Missing = MissingRefuse
	case n.Missing == "":
		n.Missing = MissingWait
	case n.Missing != MissingWait && n.Missing != MissingRefuse:
		return at.Locate("missing", fmt.Errorf("missing = %q: use %q or %q", n.Missing, MissingWait, MissingRefuse))
	}
	return nil
}

// logLevels are the values of log_level.
var logLevels = map[string]slog.Level{"": slog.LevelInfo, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// Level returns the least level of what the process logs.
func (n *Node) Level() slog.Level { return logLevels[n.LogLevel] }

// checkLogLevel checks log_level.
func (n *Node) checkLogLevel(at Position) error {
	if _, ok := logLevels[n.LogLevel]; !ok {
		return at.Locate("log_level", fmt.Errorf("log_level = %q: use \"debug\", \"info\", \"warn\" or \"error\"", n.LogLevel))
	}
	return nil
}
