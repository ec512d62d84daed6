// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// wakefulness keeps CPUs from going idle, by a process on each that runs when nothing else wants to. A virtual machine
// takes long to wake, so that a lightly loaded one would answer later than one that is flooded.
type wakefulness struct {
	stop  []func()
	ended []chan struct{}
}

// keepAwake starts the processes. They end with this one.
func keepAwake(cpus ...int) (*wakefulness, error) {
	w := &wakefulness{}
	for _, cpu := range cpus {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
		started, ended := make(chan error, 1), make(chan struct{})
		// The process is killed when the thread ends that started it.
		go func() {
			defer close(ended)
			_ = load.OnThread(func() error {
				err := load.Pin(cpu)
				if err == nil {
					err = cmd.Start()
				}
				if err == nil {
					idle := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
					if err = unix.SchedSetAttr(cmd.Process.Pid, idle, 0); err != nil {
						_ = cmd.Process.Kill()
					}
				}
				started <- err
				if cmd.Process != nil {
					_ = cmd.Wait()
				}
				return nil
			})
		}()
		if err := <-started; err != nil {
			return w, errors.Join(fmt.Errorf("keep CPU %d from going idle: %w", cpu, err), w.end())
		}
		w.stop, w.ended = append(w.stop, func() { _ = cmd.Process.Kill() }), append(w.ended, ended)
	}
	return w, nil
}

// end ends the processes.
func (w *wakefulness) end() error {
	for i, stop := range w.stop {
		stop()
		<-w.ended[i]
	}
	w.stop, w.ended = nil, nil
	return nil
}
