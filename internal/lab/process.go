// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is the time between SIGTERM and SIGKILL for a process of a lab that is
// taken down. It is short because the process has nothing to save.
const stopGrace = time.Second

// Process is a program that the lab started. Nothing restarts it.
type Process struct {
	Name    string `json:"name"` // also the name of its log file: as1-control, ...
	NS      string `json:"ns"`
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in clock ticks after boot, to recognise a reused PID
	Log     string `json:"log"`
}

// Alive tells whether the process runs. A zombie does not.
func (p Process) Alive() bool {
	started, ok := startTime(p.PID)
	return ok && started == p.Started
}

// startTime returns when a process started, in clock ticks after boot (field 22 of
// proc_pid_stat(5)). It returns false if the process has ended.
func startTime(pid int) (uint64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The second field is the command in parentheses and may hold anything.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 || fields[0] == "X" {
		return 0, false
	}
	// The first thread may be a zombie while others still have the sockets of the process open. They are counted here, since a list
	// of them in /proc may end early while they end.
	if threads := fields[17]; fields[0] == "Z" && (threads == "0" || threads == "1") {
		return 0, false
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

// spawn starts a program in a namespace and records it in the state. The program has
// a session of its own, so that a Ctrl-C at the terminal does not reach it. Its
// output is appended to logs/NAME.log.
func (l *Lab) spawn(name, ns string, argv ...string) error {
	log, err := os.OpenFile(filepath.Join(l.Dir, "logs", name+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = l.Dir
	cmd.Env = l.environ(ns)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.Do(ns, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	started, ok := startTime(cmd.Process.Pid)
	p := Process{Name: name, NS: ns, PID: cmd.Process.Pid, Started: started, Log: log.Name()}
	// While this process runs, it has to reap the new one.
	go func() { _ = cmd.Wait() }()
	if !ok {
		return fmt.Errorf("start %s: it ended at once: %s", name, lastLine(p.Log))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(name)
	l.Processes = append(l.Processes, p)
	return l.save()
}

// forget removes a process from the state. The caller holds the lock.
func (l *Lab) forget(name string) {
	for i, p := range l.Processes {
		if p.Name == name {
			l.Processes = append(l.Processes[:i:i], l.Processes[i+1:]...)
			return
		}
	}
}

// Process returns a process of the lab by its name.
func (l *Lab) Process(name string) (Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.Processes {
		if p.Name == name {
			return p, nil
		}
	}
	return Process{}, fmt.Errorf("lab %s has no process %q", l.Name, name)
}

func running(all []Process) []Process {
	var alive []Process
	for _, p := range all {
		if p.Alive() {
			alive = append(alive, p)
		}
	}
	return alive
}

// processesIn returns all processes in the namespaces with these inode numbers,
// except this process.
func processesIn(inodes map[uint64]string) []Process {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil
	}
	var found []Process
	for _, link := range links {
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(link, &st) != nil {
			continue
		}
		ns, ours := inodes[st.Ino]
		started, alive := startTime(pid)
		if ours && alive {
			found = append(found, Process{Name: strconv.Itoa(pid), NS: ns, PID: pid, Started: started})
		}
	}
	return found
}

// endAll ends processes with a signal, or with SIGKILL after grace, and waits until
// all have ended.
func endAll(procs []Process, sig syscall.Signal, grace time.Duration) error {
	procs = running(procs)
	for _, step := range []struct {
		sig  syscall.Signal
		wait time.Duration
	}{{sig, grace}, {syscall.SIGKILL, 10 * time.Second}} {
		for _, p := range procs {
			if err := p.signal(step.sig); err != nil {
				return err
			}
		}
		for end := time.Now().Add(step.wait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if procs = running(procs); len(procs) == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("process %d (%s) does not end", procs[0].PID, procs[0].Name)
}

// signal sends a signal through a pidfd. It opens the pidfd before it compares the
// start time, so that the signal cannot reach another process with the same PID.
func (p Process) signal(sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d (%s): %w", p.PID, p.Name, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d (%s): %w", p.PID, p.Name, err)
	}
	return nil
}

// lastLine returns the last line of a log, or a remark if the log is empty or missing.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "no log"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last
	}
	return "nothing in " + path
}
