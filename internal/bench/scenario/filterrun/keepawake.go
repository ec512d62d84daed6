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

// idleLoad keeps CPUs from going idle, by a process on each that runs only if no other wants to. An idle virtual CPU takes long
// to wake up, so without it a host would answer later under a light load than under a flood.
type idleLoad struct {
	stop  []func()
	ended []chan struct{}
}

// keepAwake starts the processes. They end with this process. The caller must call end, also after an error.
func keepAwake(cpus ...int) (*idleLoad, error) {
	w := &idleLoad{}
	for _, cpu := range cpus {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
		started, ended := make(chan error, 1), make(chan struct{})
		// The kernel kills the process when the thread that started it ends, so that thread waits for the process.
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
func (w *idleLoad) end() error {
	for i, stop := range w.stop {
		stop()
		<-w.ended[i]
	}
	w.stop, w.ended = nil, nil
	return nil
}
