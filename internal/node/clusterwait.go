// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/urgent"
	"culvert/internal/datapath"
)

// waiting is a data plane that is not there yet: it waits for documents with which the node can start.
type waiting struct {
	read  func(*lastgood.Set) error
	found context.CancelFunc
	set   *lastgood.Set
	// why says why the node does nothing of what it is asked for.
	why error
}

// Why a node waits.
var (
	errWaiting = errors.New("the node waits for documents of the cluster: its own file alone is not whole")
	errLost    = errors.New("the node waits for documents of the cluster, and leaves the data plane as it is: its last good documents cannot be read")
)

// Run implements agent.Plane. It ends the agent once there are documents to start with.
func (w *waiting) Run(_ context.Context, set *lastgood.Set) error {
	if err := w.read(set); err != nil {
		return err
	}
	w.set = set
	w.found()
	return w.why // it does not run yet
}

// Urgent implements agent.Plane. A data plane that is here may be this node's, of a process before, and what it has is not known.
func (w *waiting) Urgent(_ context.Context, changes []agent.Held) map[string]error {
	all, err := datapath.ListHere()
	for _, i := range all {
		i.Close()
	}
	if err == nil && len(all) == 0 {
		return urgent.Without(changes, w.why)
	}
	failed := make(map[string]error)
	for _, h := range changes {
		failed[h.ID] = w.why
	}
	return failed
}

// Maintain implements agent.Plane.
func (*waiting) Maintain(context.Context, bool) (string, error) { return "", nil }

// State implements agent.Plane.
func (w *waiting) State(s *cluster.State) {
	s.Health, s.Problems = cluster.HealthBad, []string{w.why.Error()}
}

// Answer implements agent.Plane.
func (w *waiting) Answer(context.Context, cluster.Ask) cluster.Answer {
	return cluster.Answer{Errors: []string{w.why.Error()}}
}

// instance tells this process from all others: the machine's run, the namespace of PIDs, the PID, and when the process began.
func instance() string { return instanceOf(os.Getpid()) }

func instanceOf(pid int) string {
	began := startOf(pid)
	if began == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %s", placeOf(), pid, began)
}

// placeOf names the run of the machine and the namespace of PIDs.
func placeOf() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

// startOf returns when a process began, in ticks since the machine's start, "" if there is no such process.
func startOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name of the program, in brackets, may have blanks. The start is field 22, and the first behind the name is 3 (proc(5)).
	const first, start = 3, 22
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) <= start-first {
		return ""
	}
	return fields[start-first]
}

// dead tells whether the process of an instance has ended. It knows that of processes of this machine's run and this namespace of PIDs.
func dead(host, other string) bool {
	here, err := os.Hostname()
	f := strings.Fields(other)
	const parts = 4
	if err != nil || host != here || len(f) != parts {
		return false
	}
	mine := strings.Fields(placeOf())
	if len(mine) != 2 {
		return false
	}
	if f[0] != mine[0] || f[1] != mine[1] {
		return false // a machine of the same name, or this one before it started again: the lease ends soon
	}
	pid, err := strconv.Atoi(f[2])
	return err == nil && instanceOf(pid) != other
}
